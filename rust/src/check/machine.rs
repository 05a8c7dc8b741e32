//! Runs a graph on symbols: each node reads terms and makes a new one.
//!
//! Operators are uninterpreted, with one exception: `copy(d, s)` is a conversion of `s` to the type of `d`, and `s`
//! itself exactly when the types are equal. What an operator writes in place changes the heap. A body of control flow
//! is run on operands of its own and is part of the term of the call.

use crate::check::heap::{Heap, Place, Value, ValueId, number, result, show};
use crate::check::program::{Arg, Case, Graph, Node, Op, Results, Share, Type};
use crate::check::storage::{Storage, StorageId};
use crate::check::terms::{Arena, Term, Token};
use crate::check::types::{Class, Classes};

/// What the body of a control-flow operator does with storage.
#[derive(Debug)]
pub struct Body {
    /// The body as a term.
    pub term: Term,
    /// Its heap.
    pub heap: Heap,
    /// Where its outputs live.
    pub outputs: Vec<StorageId>,
}

/// A call of a control-flow operator.
#[derive(Debug)]
pub struct Operands {
    /// The call as a term.
    pub call: Term,
    /// Where its tensor operands live.
    pub storages: Vec<StorageId>,
    /// In which body the call is, by number; `None` for the program itself.
    pub heap: Option<usize>,
}

/// What both programs are run on.
#[derive(Debug)]
pub struct World<'c> {
    /// The case.
    pub case: &'c Case,
    /// Its types.
    pub classes: Classes,
    /// The terms of both programs.
    pub arena: Arena,
    /// Nodes whose value has another type than it had in the first program.
    pub retyped: Vec<String>,
}

/// A graph that was run.
#[derive(Debug, Default)]
pub struct Run {
    /// Its values.
    pub heap: Heap,
    /// The value of each node.
    pub of_node: Vec<ValueId>,
    /// The inputs, in order.
    pub inputs: Vec<ValueId>,
    /// The calls whose effect or randomness depends on when they run, in order.
    pub effects: Vec<Term>,
    /// The bodies of control flow, innermost first.
    pub bodies: Vec<Body>,
    /// The calls of control flow.
    pub operands: Vec<Operands>,
}

/// Runs all nodes of a program.
pub fn run(world: &mut World<'_>, graph: &Graph) -> Run {
    Machine::run(world, graph, false)
}

/// What the value is now, as a value of the type of `d`: itself exactly when the types are equal.
pub fn convert(world: &mut World<'_>, heap: &mut Heap, d: ValueId, s: ValueId) -> Term {
    let term = heap.read(&mut world.arena, s);
    convert_term(world, heap, d, s, term)
}

/// The same for a value that is `term`.
pub fn convert_term(world: &mut World<'_>, heap: &Heap, d: ValueId, s: ValueId, term: Term) -> Term {
    let to = heap.get(d);
    convert_to(world, (to.class, to.quantizer), heap.get(s), term)
}

fn convert_to(world: &mut World<'_>, to: (Class, Option<Token>), from: &Value, term: Term) -> Term {
    if to == (from.class, from.quantizer) && world.classes.is_tensor(from.class) {
        return term;
    }
    let mut tokens = vec![Token::Word("convert"), Token::Term(term), Token::Type(to.0)];
    tokens.extend(to.1);
    world.arena.make(&tokens)
}

struct Machine<'w, 'c> {
    world: &'w mut World<'c>,
    run: Run,
    is_body: bool,
}

impl<'w, 'c> Machine<'w, 'c> {
    fn run(world: &'w mut World<'c>, graph: &Graph, is_body: bool) -> Run {
        let mut machine = Machine { world, run: Run::default(), is_body };
        machine.run.of_node.reserve(graph.nodes.len());
        for node in &graph.nodes {
            let value = machine.node(node);
            machine.run.of_node.push(value);
        }
        machine.run
    }

    fn node(&mut self, node: &Node) -> ValueId {
        match (node.op, &node.args[..]) {
            (Op::Input(..), _) => self.input(node),
            (Op::Copy, &[Arg::Value(d), Arg::Value(s)]) => self.copy(node, d, s),
            (Op::Copy, _) => self.call(node, &[Token::Word("copy")]),
            (Op::Item(k), &[Arg::Value(source)]) => {
                let source = self.run.of_node[source];
                match self.run.heap.get(source).place {
                    Place::Tuple(count) if (k as usize) < count => source + 1 + k as usize,
                    _ => self.call(node, &[Token::Word("item"), Token::Number(k)]),
                }
            }
            (Op::Item(k), _) => self.call(node, &[Token::Word("item"), Token::Number(k)]),
            (Op::Call(name), _) => self.call(node, &[Token::Text(name)]),
        }
    }

    fn input(&mut self, node: &Node) -> ValueId {
        let place = self.run.inputs.len();
        let class = self.class(node, 0);
        let tokens = match node.op {
            Op::Input(kind, target) if !self.is_body => {
                vec![Token::Word("input"), Token::Text(kind), Token::Text(target), Token::Type(class)]
            }
            _ => vec![Token::Word("operand"), number(place), Token::Type(class)],
        };
        let term = self.world.arena.make(&tokens);
        let storage = self.run.heap.new_storage(Storage::Input(place));
        let value = self.push(node, 0, Place::Cell, storage, term);
        self.run.inputs.push(value);
        value
    }

    /// The type of the result is taken as it is stated, since not every layout can be preserved; the quantizer is the
    /// destination's.
    fn copy(&mut self, node: &Node, d: usize, s: usize) -> ValueId {
        let (d, s) = (self.run.of_node[d], self.run.of_node[s]);
        let destination = self.run.heap.read(&mut self.world.arena, d);
        let to = (self.class(node, 0), self.quantizer(node, 0, &Place::Cell, destination));
        let source = self.run.heap.read(&mut self.world.arena, s);
        let term = convert_to(self.world, to, self.run.heap.get(s), source);
        let value = self.result(node, 0, term, None, None);
        self.write_all(node, term);
        value
    }

    fn call(&mut self, node: &Node, head: &[Token]) -> ValueId {
        let mut tokens = head.to_vec();
        tokens.reserve(node.args.len() + 2);
        let mut starts = Vec::with_capacity(node.args.len());
        let mut written = false;
        let mut has_body = false;
        for arg in &node.args {
            starts.push(tokens.len());
            match arg {
                Arg::Text(text) => tokens.push(Token::Text(*text)),
                Arg::Value(source) => self.read_into(self.run.of_node[*source], &mut tokens),
                Arg::Body(body) => {
                    let (term, writes) = self.body(body);
                    tokens.push(Token::Term(term));
                    written |= writes;
                    has_body = true;
                }
            }
        }
        if node.impure {
            tokens.extend([Token::Word("at"), number(self.run.effects.len())]);
        }
        let term = self.world.arena.make(&tokens);
        if node.impure {
            self.run.effects.push(term);
        }
        let value = self.results(node, term, &starts);
        self.write_all(node, term);
        if has_body {
            self.control_flow(node, term, written);
        }
        value
    }

    fn read_into(&mut self, value: ValueId, tokens: &mut Vec<Token>) {
        let parts = self.run.heap.parts(value);
        let is_tuple = parts.start != value;
        tokens.extend(is_tuple.then_some(Token::Word("[")));
        for part in parts {
            tokens.push(Token::Term(self.run.heap.read(&mut self.world.arena, part)));
        }
        tokens.extend(is_tuple.then_some(Token::Word("]")));
    }

    /// Adds the results of a call whose arguments start at these tokens of its term.
    fn results(&mut self, node: &Node, call: Term, starts: &[usize]) -> ValueId {
        let types = match &node.results {
            Results::One(_) => return self.result(node, 0, call, None, Some(starts)),
            Results::Many(types) => types.len(),
        };
        let storage = self.run.heap.new_storage(Storage::New);
        let tuple = self.run.heap.push(Place::Tuple(types), Class::NONE, storage, call, None);
        for k in 0..u32::try_from(types).unwrap_or(u32::MAX) {
            self.result(node, k, call, Some(k), Some(starts));
        }
        tuple
    }

    fn result(&mut self, node: &Node, k: u32, call: Term, item: Option<u32>, starts: Option<&[usize]>) -> ValueId {
        let mut term = result(&mut self.world.arena, call, item);
        let share = node.shares.iter().find(|(result, _)| *result == k).map(|(_, share)| share);
        let (place, storage) = match share {
            None => (Place::Cell, self.run.heap.new_storage(Storage::New)),
            Some(Share::Same(n)) => {
                let parent = self.run.of_node[*n];
                (Place::Same(parent), self.run.heap.get(parent).storage)
            }
            Some(Share::View(n)) => match self.hole(node, *n, starts) {
                Some(hole) => {
                    let parent = self.run.of_node[*n];
                    let shown = self.run.heap.read(&mut self.world.arena, parent);
                    term = show(&mut self.world.arena, call, hole, item, shown);
                    (Place::View { parent, call, hole, item }, self.run.heap.get(parent).storage)
                }
                None => self.may(&[*n], call, k, term),
            },
            Some(Share::May(of)) => self.may(of, call, k, term),
        };
        self.push(node, k, place, storage, term)
    }

    /// The token of a call's term that stands for the argument which the result shows.
    fn hole(&self, node: &Node, shown: usize, starts: Option<&[usize]>) -> Option<usize> {
        // An argument that is several values has no term of its own.
        if matches!(self.run.heap.get(self.run.of_node[shown]).place, Place::Tuple(_)) {
            return None;
        }
        let at = node.args.iter().position(|a| matches!(a, Arg::Value(n) if *n == shown))?;
        Some(starts?[at])
    }

    fn may(&mut self, of: &[usize], call: Term, k: u32, own: Term) -> (Place, StorageId) {
        let parents: Vec<ValueId> = of.iter().flat_map(|&n| self.run.heap.parts(self.run.of_node[n])).collect();
        let seen = parents.iter().map(|&p| self.run.heap.read(&mut self.world.arena, p)).collect();
        let of = parents.iter().map(|&p| self.run.heap.get(p).storage).collect();
        let storage = self.run.heap.new_storage(Storage::May { call: (call, k), of });
        (Place::May { parents, call, own, seen }, storage)
    }

    fn push(&mut self, node: &Node, k: u32, place: Place, storage: StorageId, term: Term) -> ValueId {
        let class = self.class(node, k);
        if !self.world.arena.is_typed(term, class) {
            self.world.retyped.push(self.world.case.texts.get(node.name).to_owned());
        }
        let quantizer = self.quantizer(node, k, &place, term);
        self.run.heap.push(place, class, storage, term, quantizer)
    }

    /// What identifies the quantizer of a result: a name, or the value whose quantizer it is.
    fn quantizer(&self, node: &Node, k: u32, place: &Place, term: Term) -> Option<Token> {
        let Type::Tensor(tensor) = &self.world.case.types[type_number(node, k)] else { return None };
        let name = tensor.quantizer?;
        if !self.world.case.texts.get(name).is_empty() {
            return Some(Token::Text(name));
        }
        let inherited = match (place, &node.op, &node.args[..]) {
            (Place::Same(parent), ..) => Some(*parent),
            (_, Op::Copy, [Arg::Value(d), _]) => Some(self.run.of_node[*d]),
            _ => node.keeps.map(|n| self.run.of_node[n]),
        };
        inherited.and_then(|v| self.run.heap.get(v).quantizer).or(Some(Token::Term(term)))
    }

    /// Carries out the writes of a call.
    fn write_all(&mut self, node: &Node, call: Term) {
        for (j, write) in node.writes.iter().enumerate() {
            let term = match (write.result, &node.results) {
                (Some(_), Results::One(_)) => call,
                (Some(k), Results::Many(_)) => result(&mut self.world.arena, call, Some(k)),
                (None, _) => self.world.arena.make(&[Token::Word("written"), Token::Term(call), number(j)]),
            };
            self.run.heap.write(&mut self.world.arena, self.run.of_node[write.value], term);
        }
    }

    /// Runs a body on operands of its own; its term, and whether it writes them.
    fn body(&mut self, graph: &Graph) -> (Term, bool) {
        let run = Machine::run(self.world, graph, true);
        let mut machine = Machine { world: self.world, run, is_body: true };
        let mut tokens = vec![Token::Word("body"), number(machine.run.inputs.len())];
        let mut outputs = Vec::with_capacity(graph.outputs.len());
        for output in &graph.outputs {
            match output.value {
                Arg::Value(n) => {
                    let value = machine.run.of_node[n];
                    machine.read_into(value, &mut tokens);
                    outputs.extend(machine.run.heap.parts(value).map(|p| machine.run.heap.get(p).storage));
                }
                Arg::Text(text) => tokens.push(Token::Text(text)),
                Arg::Body(_) => {}
            }
        }
        tokens.push(Token::Word("effects"));
        tokens.extend(machine.run.effects.iter().map(|&t| Token::Term(t)));
        let mut writes = false;
        for (i, input) in machine.run.inputs.clone().into_iter().enumerate() {
            let now = machine.run.heap.read(&mut machine.world.arena, input);
            let entry = machine.world.arena.tokens(now);
            if !(entry[0] == Token::Word("operand") && entry[1] == number(i)) {
                writes = true;
                tokens.extend([Token::Word("writes"), number(i), Token::Term(now)]);
            }
        }
        let run = machine.run;
        let term = self.world.arena.make(&tokens);
        let first = self.run.bodies.len();
        self.run.bodies.extend(run.bodies);
        let me = self.run.bodies.len();
        let inner = run.operands.into_iter();
        self.run.operands.extend(inner.map(|o| Operands { heap: Some(o.heap.map_or(me, |h| h + first)), ..o }));
        self.run.bodies.push(Body { term, heap: run.heap, outputs });
        (term, writes)
    }

    /// Operands must not share storage; what the bodies write, the operands are from here on.
    fn control_flow(&mut self, node: &Node, call: Term, written: bool) {
        let values = node.args.iter().filter_map(|a| match a {
            Arg::Value(n) => Some(self.run.of_node[*n]),
            _ => None,
        });
        let is_tensor = |v: &ValueId| self.world.classes.is_tensor(self.run.heap.get(*v).class);
        let operands: Vec<ValueId> = values.flat_map(|v| self.run.heap.parts(v)).filter(is_tensor).collect();
        let storages = operands.iter().map(|&v| self.run.heap.get(v).storage).collect();
        self.run.operands.push(Operands { call, storages, heap: None });
        if written {
            for (j, value) in operands.into_iter().enumerate() {
                let term = self.world.arena.make(&[Token::Word("written"), Token::Term(call), number(j)]);
                self.run.heap.write(&mut self.world.arena, value, term);
            }
        }
    }

    fn class(&self, node: &Node, k: u32) -> Class {
        self.world.classes.of(type_number(node, k))
    }
}

fn type_number(node: &Node, k: u32) -> usize {
    match &node.results {
        Results::One(number) => *number,
        Results::Many(numbers) => numbers[k as usize],
    }
}
