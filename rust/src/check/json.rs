//! The graph JSON of an archive, read for the checker.
//!
//! Nothing is understood but what the checker needs; an argument of a kind that nobody knows is the text that it is.
//! What a rewrite has no business with, metadata of nodes for one, is kept as text, to be compared.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::check::expr::normal;
use crate::check::facts::{Facts, Relation, facts};
use crate::check::program::{
    Arg, Dim, Graph, Node, Op, Output, Results, Role, Share, Tensor, Text, Texts, Type, Write,
};
use crate::error::Error;
use crate::pt2::fault::Fault;

/// Arguments nest by a few levels, bodies of control flow included.
const MAX_DEPTH: usize = 64;

/// Views that conjugate or negate when they are read, which the type of a tensor in an archive does not show.
const LAZY: &[&str] =
    &["aten._conj.default", "aten._neg_view.default", "aten.conj.default", "aten.adjoint.default", "aten.imag.default"];

type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// What the two programs have in common.
#[derive(Debug, Default)]
pub struct Shared {
    /// Names, operators, constants.
    pub texts: Texts,
    /// Types of values.
    pub types: Vec<Type>,
    numbers: HashMap<Type, usize>,
}

/// A program, and what must stay as it is.
#[derive(Debug, Default)]
pub struct Program {
    /// The program.
    pub graph: Graph,
    /// Pieces of text by their place: what belongs to a node or a value, and everything outside the graph.
    pub rest: BTreeMap<String, String>,
}

/// Reads the program of a graph's JSON.
pub fn read(text: &str, shared: &mut Shared) -> Result<Program, Error> {
    let top: Fields<'_> = parse(text, "the program")?;
    let module: Fields<'_> = field(&top, "graph_module")?;
    let graph: &RawValue = field(&module, "graph")?;
    let signature: Signature<'_> = field(&module, "signature")?;
    let ranges: BTreeMap<String, Range> = field(&top, "range_constraints")?;
    let only = |r: &Range| r.min_val.filter(|_| r.min_val == r.max_val);
    let values = ranges.iter().filter_map(|(name, range)| Some((name.clone(), only(range)?))).collect();
    let mut program = Program::default();
    let keep = |rest: &mut BTreeMap<String, String>, fields: &Fields<'_>, place: &str, but: &[&str]| {
        for (key, value) in fields.iter().filter(|(key, _)| !but.contains(&key.as_str())) {
            rest.insert(format!("{place}{key}"), value.get().to_owned());
        }
    };
    keep(&mut program.rest, &top, "", &["graph_module"]);
    keep(&mut program.rest, &module, "graph_module.", &["graph", "signature", "module_call_graph"]);
    for (i, spec) in signature.input_specs.iter().enumerate() {
        keep(&mut program.rest, spec, &format!("input {i}, "), &[]);
    }
    let calls: Vec<&RawValue> = field(&module, "module_call_graph")?;
    let mut reader = Reader { shared, values: &values, rest: &mut program.rest, path: String::new(), depth: 0 };
    program.graph = reader.graph(graph, Some(&signature))?;
    known_names(&calls, &program.graph, &shared.texts)?;
    program.rest.insert("module_call_graph length".into(), calls.len().to_string());
    Ok(program)
}

/// A module that is called by name still finds its inputs and outputs.
fn known_names(calls: &[&RawValue], graph: &Graph, texts: &Texts) -> Result<(), Error> {
    let names: std::collections::HashSet<&str> = graph.nodes.iter().map(|n| texts.get(n.name)).collect();
    for call in calls {
        let call: Call<'_> = parse(call.get(), "module_call_graph")?;
        let Some(signature) = call.signature else { continue };
        for argument in signature.inputs.iter().chain(&signature.outputs) {
            let Some(name) = named(argument)? else { continue };
            if !names.contains(name.as_str()) {
                return Err(Fault::UnknownName.at(format_args!("module_call_graph, {}: {name:?}", call.fqn)));
            }
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Call<'a> {
    fqn: String,
    #[serde(borrow)]
    signature: Option<CallSignature<'a>>,
}

#[derive(Deserialize)]
struct CallSignature<'a> {
    #[serde(borrow)]
    inputs: Vec<&'a RawValue>,
    #[serde(borrow)]
    outputs: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Range {
    min_val: Option<i64>,
    max_val: Option<i64>,
}

#[derive(Deserialize)]
struct Signature<'a> {
    #[serde(borrow)]
    input_specs: Vec<Fields<'a>>,
    #[serde(borrow)]
    output_specs: Vec<Fields<'a>>,
}

#[derive(Deserialize)]
struct GraphJson<'a> {
    #[serde(borrow)]
    inputs: Vec<&'a RawValue>,
    #[serde(borrow)]
    outputs: Vec<&'a RawValue>,
    #[serde(borrow)]
    nodes: Vec<NodeJson<'a>>,
    #[serde(borrow)]
    tensor_values: Fields<'a>,
}

#[derive(Deserialize)]
struct NodeJson<'a> {
    target: String,
    #[serde(borrow)]
    inputs: Vec<NamedArgument<'a>>,
    #[serde(borrow)]
    outputs: Vec<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    is_hop_single_tensor_return: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct NamedArgument<'a> {
    name: String,
    #[serde(borrow)]
    arg: &'a RawValue,
}

#[derive(Deserialize)]
struct TensorMeta<'a> {
    dtype: u64,
    #[serde(borrow)]
    sizes: Vec<&'a RawValue>,
    #[serde(borrow)]
    strides: Vec<&'a RawValue>,
    device: Device,
    layout: u64,
}

#[derive(Deserialize)]
struct Device {
    #[serde(rename = "type")]
    kind: String,
    index: Option<i64>,
}

/// Strided, in the schema's enumeration.
const STRIDED: u64 = 7;

fn parse<'a, T: Deserialize<'a>>(text: &'a str, place: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|e| Fault::BadJson.at(format_args!("{place}: {e}")))
}

fn field<'a, T: Deserialize<'a>>(fields: &Fields<'a>, name: &str) -> Result<T, Error> {
    let value = fields.get(name).ok_or_else(|| Fault::BadJson.at(format_args!("{name} is missing")))?;
    parse(value.get(), name)
}

/// The name in an argument that is one value.
fn named(argument: &RawValue) -> Result<Option<String>, Error> {
    let text = argument.get();
    if !text.starts_with('{') {
        return Ok(None);
    }
    let fields: Fields<'_> = parse(text, "an argument")?;
    if let Some(name) = fields.get("name").or_else(|| fields.get("as_name")) {
        return parse(name.get(), "a name").map(Some);
    }
    match fields.values().next() {
        Some(inner) if fields.len() == 1 => named(inner),
        _ => Ok(None),
    }
}

/// Reads one graph; bodies of control flow are read by readers of their own.
struct Reader<'r> {
    shared: &'r mut Shared,
    values: &'r BTreeMap<String, i64>,
    rest: &'r mut BTreeMap<String, String>,
    /// Where the graph is, for `rest`.
    path: String,
    depth: usize,
}

/// A graph in the course of being read.
#[derive(Default)]
struct Scope {
    graph: Graph,
    /// The node of each value.
    nodes: HashMap<String, usize>,
    /// The type of each value that is a tensor.
    types: HashMap<String, usize>,
    /// How many nodes have no results.
    unnamed: usize,
    /// Whether each node's value may be conjugated or negated lazily.
    lazy: Vec<bool>,
}

impl Reader<'_> {
    fn graph(&mut self, raw: &RawValue, signature: Option<&Signature<'_>>) -> Result<Graph, Error> {
        let fields: Fields<'_> = parse(raw.get(), "a graph")?;
        for (key, value) in &fields {
            if key.ends_with("_values") {
                let entries: Fields<'_> = parse(value.get(), key)?;
                let place = |name| format!("{}value {key} {name}", self.path);
                self.rest.extend(entries.iter().map(|(name, meta)| (place(name), meta.get().to_owned())));
            } else if !["nodes", "outputs"].contains(&key.as_str()) {
                self.rest.insert(format!("{}graph.{key}", self.path), value.get().to_owned());
            }
        }
        let json: GraphJson<'_> = parse(raw.get(), "a graph")?;
        let mut scope = Scope::default();
        for (name, meta) in &json.tensor_values {
            let number = self.tensor_type(meta, name)?;
            scope.types.insert(name.clone(), number);
        }
        self.inputs(&mut scope, &json, signature)?;
        for node in &json.nodes {
            self.node(&mut scope, node)?;
        }
        self.outputs(&mut scope, &json, signature)?;
        Ok(scope.graph)
    }

    fn inputs(
        &mut self,
        scope: &mut Scope,
        json: &GraphJson<'_>,
        signature: Option<&Signature<'_>>,
    ) -> Result<(), Error> {
        if signature.is_some_and(|s| s.input_specs.len() != json.inputs.len()) {
            return Err(Fault::Signature.at("the inputs"));
        }
        for (i, input) in json.inputs.iter().enumerate() {
            let name = named(input)?.unwrap_or_else(|| format!("constant:{i}"));
            let (kind, target) = match signature.map(|s| &s.input_specs[i]) {
                None => ("operand".to_owned(), i.to_string()),
                Some(spec) => input_spec(spec, &name)?,
            };
            let op = Op::Input(self.shared.texts.intern(&kind), self.shared.texts.intern(&target));
            let node = self.new_node(scope, &name, op, Vec::new())?;
            push(scope, &name, node, false)?;
        }
        Ok(())
    }

    fn new_node(&mut self, scope: &Scope, name: &str, op: Op, args: Vec<Arg>) -> Result<Node, Error> {
        let results = Results::One(self.type_of(scope, name));
        if name.contains(|c: char| c == '"' || c == '\\' || c.is_control() || c.is_whitespace()) {
            return Err(Fault::BadJson.at(format_args!("{name:?}: a name")));
        }
        let name = self.shared.texts.intern(name);
        Ok(Node { name, op, results, args, shares: Vec::new(), writes: Vec::new(), keeps: None, impure: false })
    }

    fn type_of(&mut self, scope: &Scope, name: &str) -> usize {
        scope.types.get(name).copied().unwrap_or_else(|| {
            let other = Type::Other(self.shared.texts.intern("no tensor"));
            self.shared.number(other)
        })
    }

    fn tensor_type(&mut self, meta: &RawValue, name: &str) -> Result<usize, Error> {
        let json: TensorMeta<'_> = parse(meta.get(), name)?;
        if json.layout != STRIDED || json.sizes.len() != json.strides.len() {
            let other = Type::Other(self.shared.texts.intern(meta.get()));
            return Ok(self.shared.number(other));
        }
        let device = match json.device.index {
            Some(index) => format!("{}:{index}", json.device.kind),
            None => json.device.kind,
        };
        let mut dims = |list: &[&RawValue]| list.iter().map(|d| self.dim(d)).collect::<Result<Vec<_>, Error>>();
        let (sizes, strides) = (dims(&json.sizes)?, dims(&json.strides)?);
        let dtype = self.shared.texts.intern(&format!("dtype{}", json.dtype));
        let device = self.shared.texts.intern(&device);
        let tensor = Tensor { dtype, device, sizes, strides, conj: false, neg: false, quantizer: None };
        Ok(self.shared.number(Type::Tensor(tensor)))
    }

    fn dim(&mut self, raw: &RawValue) -> Result<Dim, Error> {
        let fields: Fields<'_> = parse(raw.get(), "a size")?;
        if let Some(n) = fields.get("as_int") {
            return parse(n.get(), "a size").map(Dim::Number);
        }
        let expr: Fields<'_> = field(&fields, "as_expr")?;
        let text: String = field(&expr, "expr_str")?;
        let text = normal(&text, self.values);
        Ok(text.parse().map_or_else(|_| Dim::Symbol(self.shared.texts.intern(&text)), Dim::Number))
    }

    fn node(&mut self, scope: &mut Scope, json: &NodeJson<'_>) -> Result<(), Error> {
        let name = json.target.strip_prefix("torch.ops.").unwrap_or(&json.target);
        let known = facts(name);
        let is_number_function = !json.target.starts_with("torch.ops.") && is_pure_function(name);
        let facts = known.unwrap_or(Facts { may_share_all: true, is_impure: !is_number_function, ..Facts::default() });
        let mut args = Vec::new();
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for input in &json.inputs {
            let first = args.len();
            self.argument(scope, input.arg, &mut args, 0)?;
            let values = args[first..].iter().filter_map(|a| match a {
                Arg::Value(n) => Some(*n),
                _ => None,
            });
            by_name.insert(&input.name, values.collect());
            let is_single = args.len() == first + 1 && matches!(args[first], Arg::Value(_));
            if !is_single || !["self", "src", "input"].contains(&input.name.as_str()) {
                let keyword = self.shared.texts.intern(&format!("{}=", input.name));
                args.insert(first, Arg::Text(keyword));
            }
        }
        let op_name = if facts.name.is_empty() { name } else { facts.name };
        let op = match (op_name, &args[..]) {
            ("aten.copy.default", [Arg::Value(_), Arg::Value(_)]) => Op::Copy,
            ("aten.clone.default", [Arg::Value(source), ..]) => {
                args = vec![Arg::Value(*source), Arg::Value(*source)];
                Op::Copy
            }
            _ => Op::Call(self.shared.texts.intern(op_name)),
        };
        self.results(scope, json, op, args, &facts, &by_name)
    }

    fn results(
        &mut self,
        scope: &mut Scope,
        json: &NodeJson<'_>,
        op: Op,
        args: Vec<Arg>,
        facts: &Facts,
        by_name: &HashMap<&str, Vec<usize>>,
    ) -> Result<(), Error> {
        let outputs = Outputs::read(&json.outputs)?;
        let first = outputs.names.iter().flatten().next().cloned();
        let place = first.unwrap_or_else(|| {
            scope.unnamed += 1;
            format!("nameless:{}", scope.unnamed)
        });
        if let Some(metadata) = json.metadata {
            self.rest.insert(format!("{}node {place}", self.path), metadata.get().to_owned());
        }
        let single = json.is_hop_single_tensor_return.map_or("null", RawValue::get);
        self.rest.insert(format!("{}node {place} single", self.path), single.to_owned());
        // An operator that writes in place may compute the same, and is another one.
        self.rest.insert(format!("{}node {place} target", self.path), json.target.clone());
        let name = if outputs.is_one { place.clone() } else { format!("{place}:all") };
        let mut node = self.new_node(scope, &name, op, args)?;
        let lazy = self.relate(scope, &mut node, facts, by_name, &outputs);
        if !outputs.is_one {
            let names = outputs.names.iter().map(|n| n.as_deref().unwrap_or_default());
            node.results = Results::Many(names.map(|n| self.type_of(scope, n)).collect());
        }
        if lazy {
            self.make_lazy(&mut node);
        }
        push(scope, &name, node, lazy)?;
        let call = scope.graph.nodes.len() - 1;
        for (k, name) in outputs.names.iter().enumerate().filter(|_| !outputs.is_one) {
            let (Some(name), Ok(k)) = (name, u32::try_from(k)) else { continue };
            let mut item = self.new_node(scope, name, Op::Item(k), vec![Arg::Value(call)])?;
            if lazy {
                self.make_lazy(&mut item);
            }
            push(scope, name, item, lazy)?;
        }
        Ok(())
    }

    /// Adds what the operator shares and writes; whether its results may be lazy.
    fn relate(
        &mut self,
        scope: &Scope,
        node: &mut Node,
        facts: &Facts,
        by_name: &HashMap<&str, Vec<usize>>,
        outputs: &Outputs,
    ) -> bool {
        let count = u32::try_from(outputs.names.len()).unwrap_or(u32::MAX);
        let values =
            |names: &[&str]| -> Vec<usize> { names.iter().filter_map(|n| by_name.get(n)).flatten().copied().collect() };
        let mut tensors: Vec<usize> =
            node.args.iter().filter_map(|a| if let Arg::Value(n) = a { Some(*n) } else { None }).collect();
        tensors.dedup();
        // Results are told apart only where each is an output of its own, or all are elements of one list.
        let may_share_all = facts.may_share_all || (outputs.is_mixed && !facts.shares.is_empty());
        if may_share_all {
            node.shares.extend((0..count).map(|k| (k, Share::May(tensors.clone()))));
        }
        for (relation, result, arguments) in facts.shares.iter().filter(|_| !may_share_all) {
            let of = values(arguments);
            let share = match (relation, &of[..]) {
                (_, []) => continue,
                (Relation::Same, &[one]) => Share::Same(one),
                (Relation::View, &[one]) => Share::View(one),
                _ => Share::May(of),
            };
            let every = result.map_or(0..count, |k| k..k.saturating_add(1).min(count));
            node.shares.extend(every.map(|k| (k, share.clone())));
        }
        for (argument, result) in &facts.writes {
            let result = result.filter(|k| *k < count && !outputs.is_mixed);
            node.writes.extend(values(&[argument]).into_iter().map(|value| Write { value, result }));
        }
        node.keeps = if facts.keeps { tensors.first().copied() } else { None };
        node.impure = facts.is_impure;
        let is_lazy_view = node.shares.iter().any(|(_, share)| match share {
            Share::Same(n) | Share::View(n) => scope.lazy[*n],
            Share::May(of) => of.iter().any(|&n| scope.lazy[n]),
        });
        let is_lazy_copy = node.op == Op::Copy && tensors.first().is_some_and(|&d| scope.lazy[d]);
        let makes_lazy = matches!(node.op, Op::Call(name) if LAZY.contains(&self.shared.texts.get(name)));
        is_lazy_view || is_lazy_copy || makes_lazy
    }

    fn make_lazy(&mut self, node: &mut Node) {
        let mut lazy = |number: usize| {
            let mut kind = self.shared.types[number].clone();
            if let Type::Tensor(tensor) = &mut kind {
                // Whether conjugated or negated we do not know, so it is equal to what is as unknown only.
                (tensor.conj, tensor.neg) = (true, true);
            }
            self.shared.number(kind)
        };
        match &mut node.results {
            Results::One(number) => *number = lazy(*number),
            Results::Many(numbers) => numbers.iter_mut().for_each(|n| *n = lazy(*n)),
        }
    }

    fn argument(&mut self, scope: &Scope, raw: &RawValue, args: &mut Vec<Arg>, depth: usize) -> Result<(), Error> {
        if depth + self.depth > MAX_DEPTH {
            return Err(Fault::BadJson.at("an argument: nested too deep"));
        }
        let text = raw.get();
        if text.starts_with('[') {
            let elements: Vec<&RawValue> = parse(text, "an argument")?;
            args.push(self.word("["));
            for element in elements {
                self.argument(scope, element, args, depth + 1)?;
            }
            args.push(self.word("]"));
        } else if text.starts_with('{') {
            let fields: Fields<'_> = parse(text, "an argument")?;
            self.fields(scope, &fields, args, depth)?;
        } else {
            args.push(self.word(text));
        }
        Ok(())
    }

    fn fields(&mut self, scope: &Scope, fields: &Fields<'_>, args: &mut Vec<Arg>, depth: usize) -> Result<(), Error> {
        if let Some(graph) = fields.get("graph") {
            let name: String = field(fields, "name")?;
            let path = format!("{}{name}/", self.path);
            let depth = self.depth + depth + 1;
            let mut body = Reader { shared: self.shared, values: self.values, rest: self.rest, path, depth };
            args.push(Arg::Body(Box::new(body.graph(graph, None)?)));
            return Ok(());
        }
        for (key, value) in fields {
            if key == "name" || key == "as_name" {
                let name: String = parse(value.get(), key)?;
                match scope.nodes.get(&name) {
                    Some(&node) => args.push(Arg::Value(node)),
                    // Of a constant object, say; of a value it would be a mistake.
                    None if fields.len() > 1 => args.push(self.word(&name)),
                    None => return Err(Fault::UnknownName.at(format_args!("{name:?}"))),
                }
            } else {
                if !["as_tensor", "as_tensors"].contains(&key.as_str()) {
                    args.push(self.word(key));
                }
                self.argument(scope, value, args, depth + 1)?;
            }
        }
        Ok(())
    }

    fn word(&mut self, text: &str) -> Arg {
        Arg::Text(self.shared.texts.intern(text))
    }

    fn outputs(
        &mut self,
        scope: &mut Scope,
        json: &GraphJson<'_>,
        signature: Option<&Signature<'_>>,
    ) -> Result<(), Error> {
        if signature.is_some_and(|s| s.output_specs.len() != json.outputs.len()) {
            return Err(Fault::Signature.at("the outputs"));
        }
        for (i, output) in json.outputs.iter().enumerate() {
            let (role, declared) = match signature.map(|s| &s.output_specs[i]) {
                None => (Role::User, None),
                Some(spec) => self.output_spec(spec)?,
            };
            let value = match named(output)? {
                Some(name) => {
                    let unknown = || Fault::UnknownName.at(format_args!("output {i}: {name:?}"));
                    Arg::Value(*scope.nodes.get(&name).ok_or_else(unknown)?)
                }
                None => self.word(output.get()),
            };
            let named = declared.filter(|_| matches!(value, Arg::Value(_)));
            scope.graph.outputs.push(Output { role, value, named });
        }
        Ok(())
    }

    /// What an output is for, and the name that the signature gives it.
    fn output_spec(&mut self, spec: &Fields<'_>) -> Result<(Role, Option<Text>), Error> {
        let Some((kind, inner)) = spec.iter().next() else { return Err(Fault::Signature.at("an output")) };
        let fields: Fields<'_> = parse(inner.get(), kind)?;
        let name = match fields.get("arg") {
            Some(argument) => named(argument)?,
            None => None,
        };
        let role = match kind.strip_suffix("_mutation") {
            Some(kind) => {
                let target: String = field(&fields, &format!("{kind}_name"))?;
                Role::Mutation(self.shared.texts.intern(kind), self.shared.texts.intern(&target))
            }
            None if kind == "user_output" => Role::User,
            None => Role::Other,
        };
        Ok((role, name.map(|n| self.shared.texts.intern(&n))))
    }
}

impl Shared {
    fn number(&mut self, kind: Type) -> usize {
        *self.numbers.entry(kind).or_insert_with_key(|kind| {
            self.types.push(kind.clone());
            self.types.len() - 1
        })
    }
}

fn push(scope: &mut Scope, name: &str, node: Node, lazy: bool) -> Result<(), Error> {
    if scope.nodes.insert(name.to_owned(), scope.graph.nodes.len()).is_some() {
        return Err(Fault::DuplicateName.at(format_args!("{name:?}")));
    }
    scope.graph.nodes.push(node);
    scope.lazy.push(lazy);
    Ok(())
}

/// Kind and target of an input.
fn input_spec(spec: &Fields<'_>, name: &str) -> Result<(String, String), Error> {
    let Some((kind, inner)) = spec.iter().next() else { return Err(Fault::Signature.at("an input")) };
    let fields: Fields<'_> = parse(inner.get(), kind)?;
    let target = match fields.get(&format!("{kind}_name")) {
        Some(target) => parse(target.get(), kind)?,
        None => name.to_owned(),
    };
    Ok((kind.clone(), target))
}

fn is_pure_function(name: &str) -> bool {
    ["_operator.", "operator.", "math.", "builtins.", "torch."].iter().any(|module| name.starts_with(module))
}

/// The results of a node.
struct Outputs {
    /// Their names; `None` for a result that is nothing.
    names: Vec<Option<String>>,
    /// Whether the node's value is its only result.
    is_one: bool,
    /// Whether there are lists among several results, so that we cannot tell which result of the schema is which.
    is_mixed: bool,
}

impl Outputs {
    fn read(outputs: &[&RawValue]) -> Result<Self, Error> {
        let mut names = Vec::new();
        let mut lists = 0;
        for output in outputs {
            let fields: Fields<'_> = parse(output.get(), "a result")?;
            match fields.values().next() {
                Some(inner) if inner.get().starts_with('[') => {
                    lists += 1;
                    let elements: Vec<&RawValue> = parse(inner.get(), "a result")?;
                    for element in elements {
                        names.push(named(element)?);
                    }
                }
                _ => names.push(named(output)?),
            }
        }
        let is_one = lists == 0 && names.len() == 1;
        Ok(Outputs { names, is_one, is_mixed: lists > 0 && outputs.len() > 1 })
    }
}
