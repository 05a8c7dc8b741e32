//! Graph JSON -> [`Problem`], for the top graph and for each control-flow body.
//!
//! The rules are those of the torch path (`python/mutcanon/_extract.py`), and so is the order in which values are
//! visited: both paths have the same plan and the same reasons, which a test compares. Only what bears on a decision
//! is extracted: the copies, what they read, and whatever may share storage with an output.

use std::collections::{HashMap, HashSet};

use crate::error::Error;
use crate::ids::{LayoutId, ValueId};
use crate::problem::{Def, InputKind, Output, Problem, Value};
use crate::pt2::fault::Fault;
use crate::pt2::graph::{Argument, Node, OutputKind, Signature};
use crate::pt2::layouts::{Layouts, Symbols};
use crate::pt2::scope::{Key, Scope, single};
use crate::pt2::sharing;

/// Views that conjugate or negate when they are read. A tensor's metadata in an archive does not show it, so it is
/// followed from here through views.
const LAZY: &[&str] = &[
    "torch.ops.aten._conj.default",
    "torch.ops.aten._neg_view.default",
    "torch.ops.aten.conj.default",
    "torch.ops.aten.adjoint.default",
    "torch.ops.aten.matrix_H.default",
];
/// And what undoes them.
const RESOLVED: &[&str] = &["torch.ops.aten.resolve_conj.default", "torch.ops.aten.resolve_neg.default"];

/// A problem and the values that its numbers stand for.
pub struct Extract {
    /// The planner's problem.
    pub problem: Problem,
    /// The value of each number; none for results that have no name of their own.
    pub keys: Vec<Option<Key>>,
}

/// The problem of the top graph. `opaque_writes` says whether some body writes in place.
pub fn top<'a>(
    scope: &Scope<'_, 'a>,
    signature: &Signature<'a>,
    symbols: &Symbols<'a>,
    opaque_writes: bool,
) -> Result<Extract, Error> {
    let (outputs, specs) = (&scope.graph.outputs, &signature.output_specs);
    if outputs.len() != specs.len() {
        let found = format_args!("output: {} values, {} in the signature", outputs.len(), specs.len());
        return Err(Fault::Signature.at(found));
    }
    let inputs = || signature.input_specs.iter().filter_map(|spec| Some((spec.name?, spec)));
    let states: HashMap<&str, &str> =
        inputs().filter_map(|(name, spec)| Some((spec.state.as_deref()?, name))).collect();
    let mut builder = Builder::new(scope, symbols);
    builder.input_kinds = inputs().map(|(name, spec)| (name, spec.kind)).collect();
    builder.add_copies()?;
    let mut problem_outputs = Vec::with_capacity(outputs.len());
    for (i, (output, spec)) in outputs.iter().zip(specs).enumerate() {
        let Argument::Tensor(name) = output.value else {
            problem_outputs.push(Output::Other);
            continue;
        };
        if spec.value.name.is_some_and(|n| n != name) {
            return Err(Fault::Signature.at(format_args!("output {i}")));
        }
        let target = match &spec.value.kind {
            OutputKind::Token => {
                problem_outputs.push(Output::Other);
                continue;
            }
            OutputKind::User => {
                let value = builder.output(name)?;
                problem_outputs.push(Output::User(value));
                continue;
            }
            OutputKind::Buffer(fqn) | OutputKind::Parameter(fqn) => {
                if builder.input_kinds.get(&**fqn) == Some(&InputKind::UserInput) {
                    builder.namesakes.push(i);
                }
                states.get(&**fqn).copied()
            }
            OutputKind::UserInput(name) => {
                if states.contains_key(&**name) {
                    builder.namesakes.push(i);
                }
                Some(&**name)
            }
        };
        let target = target.and_then(|t| scope.find(t, 0).ok()); // an input is defined before the first node
        let target = target.ok_or_else(|| Fault::UnknownTarget.at(format_args!("output {i}")))?;
        problem_outputs.push(Output::Mutation {
            target: builder.visit(target)?,
            value: builder.output(name)?,
            pinned: matches!(spec.value.kind, OutputKind::UserInput(_)),
        });
    }
    builder.finish(problem_outputs, opaque_writes, false)
}

/// The problem of a control-flow body, whose outputs must not alias anything (semantics 4.6).
pub fn body<'a>(scope: &Scope<'_, 'a>, symbols: &Symbols<'a>, opaque_writes: bool) -> Result<Extract, Error> {
    let mut builder = Builder::new(scope, symbols);
    builder.add_copies()?;
    let mut outputs = Vec::with_capacity(scope.graph.outputs.len());
    for output in &scope.graph.outputs {
        outputs.push(match output.value {
            Argument::Tensor(name) => Output::User(builder.output(name)?),
            _ => Output::Other,
        });
    }
    builder.finish(outputs, opaque_writes, true)
}

/// Numbers values, operands first.
struct Builder<'s, 'p, 'a> {
    scope: &'s Scope<'p, 'a>,
    layouts: Layouts<'s, 'a>,
    input_kinds: HashMap<&'a str, InputKind>,
    kinds: HashMap<ValueId, InputKind>,
    values: Vec<Value>,
    keys: Vec<Option<Key>>,
    /// Whether each value may be conjugated or negated lazily.
    lazy: Vec<bool>,
    numbers: HashMap<Key, ValueId>,
    /// The storage of each of several results.
    storage: HashMap<(usize, usize), ValueId>,
    namesakes: Vec<usize>,
}

impl<'s, 'p, 'a> Builder<'s, 'p, 'a> {
    fn new(scope: &'s Scope<'p, 'a>, symbols: &'s Symbols<'a>) -> Self {
        Builder {
            scope,
            layouts: Layouts::new(symbols),
            input_kinds: HashMap::new(),
            kinds: HashMap::new(),
            values: Vec::new(),
            namesakes: Vec::new(),
            keys: Vec::new(),
            lazy: Vec::new(),
            numbers: HashMap::new(),
            storage: HashMap::new(),
        }
    }

    /// Numbers the copies. They stand in graph order, so most find their operands numbered.
    fn add_copies(&mut self) -> Result<(), Error> {
        self.scope.copies.iter().try_for_each(|&n| self.visit(Key::Node(n)).map(drop))
    }

    fn output(&mut self, name: &str) -> Result<ValueId, Error> {
        let key = self.scope.find(name, usize::MAX)?;
        self.visit(key)
    }

    /// The number of a value; numbers what it depends on first.
    fn visit(&mut self, key: Key) -> Result<ValueId, Error> {
        let mut stack = vec![key];
        while let Some(&top) = stack.last() {
            if self.numbers.contains_key(&top) {
                stack.pop();
                continue;
            }
            let operands = self.scope.operands(top)?;
            let depth = stack.len();
            stack.extend(operands.iter().filter(|o| !self.numbers.contains_key(o)));
            if stack.len() == depth {
                self.add(top, &operands)?;
                stack.pop();
            }
        }
        Ok(self.numbers[&key])
    }

    fn add(&mut self, key: Key, operands: &[Key]) -> Result<(), Error> {
        let numbers: Vec<ValueId> = operands.iter().map(|o| self.numbers[o]).collect();
        let is_lazy = |v: &ValueId| self.lazy[v.index()];
        let mut lazy = false;
        let mut keeps_representation_of = None;
        let def = match (key, numbers.as_slice()) {
            (Key::Input(_), _) => Def::Placeholder,
            (Key::Node(n), &[destination, source]) if self.scope.is_copy(key) => {
                keeps_representation_of = Some(destination);
                lazy = is_lazy(&destination);
                Def::Copy { destination, source, non_blocking: is_non_blocking(&self.scope.graph.nodes[n]) }
            }
            (Key::Node(n), operands) => {
                let node = &self.scope.graph.nodes[n];
                let facts = self.scope.facts(node);
                if operands.is_empty() {
                    Def::Fresh
                } else if facts.keeps {
                    keeps_representation_of = operands.first().copied();
                    Def::Fresh
                } else {
                    let is_any = operands.iter().any(is_lazy) && !RESOLVED.contains(&node.target);
                    lazy = is_any || LAZY.contains(&node.target);
                    Def::Alias(operands.to_vec())
                }
            }
            (Key::Item(n, i), operands) => {
                lazy = operands.iter().any(is_lazy);
                Def::Alias(if self.scope.facts(&self.scope.graph.nodes[n]).aliases.is_none() {
                    vec![self.storage(n, i)]
                } else {
                    operands.to_vec()
                })
            }
            (Key::Element(..), operands) => {
                lazy = operands.iter().any(is_lazy);
                Def::Alias(operands.to_vec())
            }
        };
        let name = self.scope.name(key).unwrap_or_default();
        let is_tuple = matches!(key, Key::Node(n) if single(&self.scope.graph.nodes[n]).is_none());
        let meta = if is_tuple { None } else { self.scope.meta(name) };
        let layout = self.layouts.number(meta, name, lazy)?;
        let number = self.push(Value { name: name.into(), layout, def, keeps_representation_of }, Some(key), lazy);
        self.numbers.insert(key, number);
        if let (Key::Input(_), Some(&kind)) = (key, self.input_kinds.get(name)) {
            self.kinds.insert(number, kind);
        }
        Ok(())
    }

    /// The storage of one of several fresh results, which are told apart.
    fn storage(&mut self, n: usize, i: usize) -> ValueId {
        if let Some(&number) = self.storage.get(&(n, i)) {
            return number;
        }
        let value = Value { name: String::new(), layout: LayoutId(0), def: Def::Fresh, keeps_representation_of: None };
        let number = self.push(value, None, false);
        self.storage.insert((n, i), number);
        number
    }

    fn push(&mut self, value: Value, key: Option<Key>, lazy: bool) -> ValueId {
        self.values.push(value);
        self.keys.push(key);
        self.lazy.push(lazy);
        ValueId::new(self.values.len() - 1)
    }

    fn finish(mut self, outputs: Vec<Output>, opaque_writes: bool, is_body: bool) -> Result<Extract, Error> {
        let mut operand_groups = Vec::new();
        for &n in &self.scope.higher_order {
            let group = self.scope.tensor_operands(n)?;
            if group.iter().any(|&key| self.scope.is_copy(key)) {
                operand_groups.push(group.into_iter().map(|key| self.visit(key)).collect::<Result<_, _>>()?);
            }
        }
        let mut written = Vec::new();
        for &n in &self.scope.writers {
            let writes = self.scope.facts(&self.scope.graph.nodes[n]).writes;
            for key in self.scope.arguments(n, writes)? {
                written.push(self.visit(key)?);
            }
        }
        let mutations = outputs.iter().filter_map(|output| match output {
            Output::Mutation { value, .. } => Some(*value),
            _ => None,
        });
        let names: HashSet<&str> = mutations.clone().filter_map(|v| self.scope.name(self.keys[v.index()]?)).collect();
        let names = self.scope.read_by_nodes(&names);
        let is_read =
            |v: &ValueId| self.keys[v.index()].and_then(|k| self.scope.name(k)).is_some_and(|n| names.contains(n));
        let read = mutations.filter(is_read).collect();
        let problem = Problem {
            symbols: self.layouts.expressions,
            layouts: self.layouts.table,
            values: self.values,
            kinds: self.kinds,
            read,
            outputs,
            namesakes: self.namesakes,
            operand_groups,
            written,
            opaque_writes,
            is_body,
            ..Problem::default()
        };
        problem.validate()?;
        if !sharing::is_bounded(&problem) {
            return Err(Fault::TooLarge.at("values that may all share storage with one another"));
        }
        Ok(Extract { problem, keys: self.keys })
    }
}

fn is_non_blocking(copy: &Node<'_>) -> bool {
    let flag = copy.inputs.iter().find(|i| i.name == "non_blocking").map(|i| &i.arg);
    !matches!(flag, None | Some(Argument::Bool(false) | Argument::Plain))
}
