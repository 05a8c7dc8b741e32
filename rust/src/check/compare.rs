//! Two programs side by side: what is different that should not be.

use std::collections::{HashMap, HashSet};

use crate::check::consumer::{Late, Outcome, in_parallel, in_sequence, mutations};
use crate::check::heap::Heap;
use crate::check::machine::{Run, World, run};
use crate::check::program::{Arg, Case, Consumer, Graph, Op, Results, Role, Text};
use crate::check::storage::{Sharer, Slot, newly_shared};
use crate::check::terms::{Arena, Term};
use crate::check::types::{Class, Classes};
use crate::error::Error;

/// One thing that is wrong, or that would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// The kind, stable.
    pub code: &'static str,
    /// The output, input or node that it is about, and what is the matter with it.
    pub message: String,
}

/// What the checker has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What is wrong.
    pub objections: Vec<Objection>,
    /// What would be wrong if the caller passed one tensor as two inputs, and what the consumer never does.
    pub warnings: Vec<Objection>,
}

impl Verdict {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.objections.is_empty()
    }
}

/// Compares the two programs of a case.
pub fn check(case: &Case) -> Result<Verdict, Error> {
    let classes = Classes::new(&case.types, &case.equal)?;
    let mut world = World { case, classes, arena: Arena::default(), retyped: Vec::new() };
    world.arena.learns = true;
    let mut before = run(&mut world, &case.before);
    world.arena.learns = false;
    let mut after = run(&mut world, &case.after);

    let mut judge = Judge { case, verdict: Verdict::default() };
    for node in std::mem::take(&mut world.retyped) {
        judge.object("type", format!("{node}: its type is not what it was"));
    }
    judge.names();
    judge.inputs(&world.classes);
    judge.outputs();
    judge.input_order();
    judge.effects(&world.arena, &before, &after);
    if judge.verdict.is_right() {
        // Inputs and outputs correspond now, so they can be compared one by one.
        let due = in_parallel(&mut world, &mut before, &case.before);
        let now = in_parallel(&mut world, &mut after, &case.after);
        judge.values(&world.arena, &due, &now);
        let usual = match &case.consumer {
            Consumer::Steps(_) => &Consumer::Torch,
            consumer => consumer,
        };
        let was = in_sequence(&mut world, &mut before, &case.before, usual);
        let found = in_sequence(&mut world, &mut after, &case.after, &case.consumer);
        judge.write_back(&world.arena, &now, &found);
        judge.returned_storage(&before, &after, [&due, &was], &found);
        judge.control_flow(&before, &after);
        judge.one_tensor(&world.classes, &was, &found);
    }
    Ok(judge.verdict)
}

struct Judge<'c> {
    case: &'c Case,
    verdict: Verdict,
}

/// What an output is to be compared with: positions of mutations are free.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Position(usize),
    Target(Text, Text),
}

fn place(graph: &Graph, output: usize) -> Place {
    match graph.outputs[output].role {
        Role::Mutation(kind, target) => Place::Target(kind, target),
        Role::User | Role::Other => Place::Position(output),
    }
}

/// Name, kind, target and type of each input.
fn inputs(graph: &Graph) -> Vec<(Text, Text, Text, usize)> {
    let inputs = graph.nodes.iter().filter_map(|n| match (n.op, &n.results) {
        (Op::Input(kind, target), &Results::One(number)) => Some((n.name, kind, target, number)),
        _ => None,
    });
    inputs.collect()
}

impl Judge<'_> {
    fn object(&mut self, code: &'static str, message: String) {
        let objection = Objection { code, message };
        if self.verdict.objections.last() != Some(&objection) {
            self.verdict.objections.push(objection);
        }
    }

    fn warn(&mut self, code: &'static str, message: String) {
        self.verdict.warnings.push(Objection { code, message });
    }

    fn text(&self, text: Text) -> &str {
        self.case.texts.get(text)
    }

    fn output(&self, i: usize) -> String {
        match self.case.after.outputs.get(i).map(|o| o.role) {
            Some(Role::Mutation(kind, target)) => format!("{} {}", self.text(kind), self.text(target)),
            _ => format!("output {i}"),
        }
    }

    /// Names are unique, and the signature names what the graph returns (semantics 6).
    fn names(&mut self) {
        let case = self.case;
        let mut seen = HashSet::new();
        for node in &case.after.nodes {
            if !seen.insert(node.name) {
                self.object("names", format!("{}: two nodes have this name", self.text(node.name)));
            }
        }
        for (i, output) in case.after.outputs.iter().enumerate() {
            let (&Arg::Value(node), Some(named)) = (&output.value, output.named) else { continue };
            let name = case.after.nodes[node].name;
            if name != named {
                let (name, named) = (self.text(name), self.text(named));
                let message = format!("output {i}: the graph returns {name}, the signature names {named}");
                self.object("signature", message);
            }
        }
    }

    fn inputs(&mut self, classes: &Classes) {
        let (due, found) = (inputs(&self.case.before), inputs(&self.case.after));
        if due.len() != found.len() {
            self.object("inputs", format!("{} inputs instead of {}", found.len(), due.len()));
        }
        for (a, b) in due.iter().zip(&found) {
            if (a.1, a.2, classes.of(a.3)) != (b.1, b.2, classes.of(b.3)) {
                let message = format!("{}: this input is not what it was", self.text(b.0));
                self.object("inputs", message);
            }
        }
    }

    /// The same targets, each once, on nodes of their own, before the user outputs; and these where they were.
    fn outputs(&mut self) {
        let case = self.case;
        let (before, after) = (&case.before, &case.after);
        if before.outputs.len() != after.outputs.len() {
            self.object("outputs", format!("{} outputs instead of {}", after.outputs.len(), before.outputs.len()));
            return;
        }
        let known: HashSet<(Text, Text)> =
            inputs(after).into_iter().map(|(_, kind, target, _)| (kind, target)).collect();
        let places = |g: &Graph| (0..g.outputs.len()).map(|i| place(g, i)).collect::<HashSet<_>>();
        let (due, found) = (places(before), places(after));
        let mut nodes = HashSet::new();
        let mut user_seen = false;
        for (i, output) in after.outputs.iter().enumerate() {
            let was = before.outputs[i].role;
            let is_mutation = matches!(output.role, Role::Mutation(..));
            let mutated = matches!(was, Role::Mutation(..));
            if is_mutation != mutated || (!is_mutation && output.role != was) {
                self.object("outputs", format!("output {i}: it is for something else than before"));
            } else if !due.contains(&place(after, i)) {
                self.object("targets", format!("{}: it was not mutated before", self.output(i)));
            } else if due.len() != found.len() {
                self.object("targets", format!("{}: some target is mutated twice", self.output(i)));
            }
            user_seen |= output.role == Role::User;
            let Role::Mutation(kind, target) = output.role else {
                if let (Arg::Text(a), Arg::Text(b)) = (&before.outputs[i].value, &output.value)
                    && a != b
                {
                    self.object("value", format!("output {i}: {} instead of {}", self.text(*b), self.text(*a)));
                }
                continue;
            };
            if user_seen {
                self.object("order", format!("{}: a mutation after a user output", self.output(i)));
            }
            if !known.contains(&(kind, target)) {
                self.object("targets", format!("{}: no such input", self.output(i)));
            }
            match output.value {
                Arg::Value(node) if nodes.insert(node) => {}
                Arg::Value(_) => {
                    self.object("shared_node", format!("{}: another mutation has the same node", self.output(i)));
                }
                _ => self.object("value", format!("{}: its value is no node", self.output(i))),
            }
        }
    }

    /// An `ExecuTorch` method returns what it made of its inputs in this order.
    fn input_order(&mut self) {
        let case = self.case;
        let targets = |g: &Graph| -> Vec<Text> {
            let of_inputs = g.outputs.iter().filter_map(|o| match o.role {
                Role::Mutation(kind, target) if case.texts.get(kind) == "user_input" => Some(target),
                _ => None,
            });
            of_inputs.collect()
        };
        for (due, found) in targets(&case.before).into_iter().zip(targets(&case.after)) {
            if due != found {
                let (due, found) = (self.text(due), self.text(found));
                self.object("order", format!("user_input {found}: it is returned where {due} was"));
            }
        }
    }

    fn effects(&mut self, arena: &Arena, before: &Run, after: &Run) {
        let (due, found) = (&before.effects, &after.effects);
        if due.len() != found.len() {
            self.object("effects", format!("{} impure calls instead of {}", found.len(), due.len()));
        }
        for (i, (&a, &b)) in due.iter().zip(found).enumerate().filter(|(_, (a, b))| a != b) {
            let message = format!("impure call {i}: {}", arena.difference(&self.case.texts, a, b));
            self.object("effects", message);
        }
    }

    /// The values by their meaning, before anything is written. A new copy may give a mutation's value the type of the
    /// input, which it takes anyway; other than that the value stays what it was.
    fn values(&mut self, arena: &Arena, due: &Outcome, now: &Outcome) {
        let case = self.case;
        let by_place = |g: &Graph, o: &Outcome| -> HashMap<Place, (Term, Term)> {
            let users = o.returned.iter().map(|r| (place(g, r.output), (r.term, r.term)));
            users.chain(o.values.iter().map(|&(output, is, held)| (place(g, output), (is, held)))).collect()
        };
        let was = by_place(&case.before, due);
        let users = now.returned.iter().map(|r| (r.output, r.term, r.term));
        for (output, is, held) in users.chain(now.values.iter().copied()) {
            match was.get(&place(&case.after, output)) {
                Some(&(a, a_held)) if a == is || (a_held == held && held == is) => {}
                Some(&(a, _)) => {
                    let message = format!("{}: {}", self.output(output), arena.difference(&case.texts, a, is));
                    self.object("value", message);
                }
                None => self.object("value", format!("{}: it was a constant", self.output(output))),
            }
        }
        let names = inputs(&case.after);
        for (i, (&a, &b)) in due.contents.iter().zip(&now.contents).enumerate().filter(|(_, (a, b))| a != b) {
            let name = self.text(names[i].0);
            let message = format!("{name}: in the end it holds {}", arena.difference(&case.texts, a, b));
            self.object("value", message);
        }
    }

    /// What the consumer comes to, against all at once.
    fn write_back(&mut self, arena: &Arena, now: &Outcome, found: &Outcome) {
        let case = self.case;
        for (output, what) in &found.trouble {
            self.object("write_back", format!("{}: {what}", self.output(*output)));
        }
        for (a, b) in now.returned.iter().zip(&found.returned).filter(|(a, b)| a.term != b.term) {
            let difference = arena.difference(&case.texts, a.term, b.term);
            self.object("write_back", format!("{}: after the write-back, {difference}", self.output(b.output)));
        }
        let names = inputs(&case.after);
        for (i, (&a, &b)) in now.contents.iter().zip(&found.contents).enumerate().filter(|(_, (a, b))| a != b) {
            let name = self.text(names[i].0).to_owned();
            if case.consumer == Consumer::ExecuTorch && self.text(names[i].1) == "parameter" {
                self.warn("never_written", format!("{name}: ExecuTorch does not write parameters back"));
                continue;
            }
            let difference = arena.difference(&case.texts, a, b);
            self.object("write_back", format!("{name}: the write-back leaves {difference}"));
        }
    }

    /// A consumer that replaces a user output by a target lets it share storage; not to do so is no worse.
    fn returned_storage(&mut self, before: &Run, after: &Run, earlier: [&Outcome; 2], found: &Outcome) {
        let shared = earlier.map(|was| {
            let pairs = was.returned.iter().zip(&found.returned);
            let slots: Vec<Slot> =
                pairs.map(|(b, a)| Slot { label: a.output, before: b.storage, after: a.storage }).collect();
            newly_shared(before.heap.storages(), after.heap.storages(), &slots, true)
        });
        let names = inputs(&self.case.after);
        let given = given_to(&self.case.before);
        for &(output, with) in shared[0].iter().filter(|s| shared[1].contains(s)) {
            let with = match with {
                Sharer::Input(i) if given.contains(&(output, i)) => continue,
                Sharer::Input(i) => self.text(names[i].0).to_owned(),
                Sharer::Slot(other) => self.output(other),
            };
            let message = format!("{}: it may share storage with {with}, and did not before", self.output(output));
            self.object("sharing", message);
        }
    }

    /// Bodies and calls of control flow are found again by their terms; equal ones correspond in order.
    fn control_flow(&mut self, before: &Run, after: &Run) {
        let earlier = by_term(before.bodies.iter().map(|b| b.term));
        for (term, k, body) in numbered(after.bodies.iter().map(|b| (b.term, b))) {
            let Some(old) = earlier.get(&term).map(|at| &before.bodies[at[k.min(at.len() - 1)]]) else { continue };
            self.disjoint(false, &old.heap, &body.heap, &old.outputs, &body.outputs);
        }
        let earlier = by_term(before.operands.iter().map(|o| o.call));
        for (term, k, call) in numbered(after.operands.iter().map(|o| (o.call, o))) {
            let Some(old) = earlier.get(&term).map(|at| &before.operands[at[k.min(at.len() - 1)]]) else { continue };
            self.disjoint(true, heap_of(before, old.heap), heap_of(after, call.heap), &old.storages, &call.storages);
        }
    }

    fn disjoint(&mut self, is_operand: bool, before: &Heap, after: &Heap, was: &[usize], now: &[usize]) {
        let what = if is_operand { "an operand" } else { "a body's output" };
        let pairs = was.iter().zip(now).enumerate();
        let slots: Vec<Slot> = pairs.map(|(label, (&before, &after))| Slot { label, before, after }).collect();
        for (label, with) in newly_shared(before.storages(), after.storages(), &slots, !is_operand) {
            let with = match with {
                Sharer::Input(i) => format!("input {i}"),
                Sharer::Slot(other) => format!("number {other}"),
            };
            let message = format!("{what}, number {label}: it may share storage with {with}, and did not before");
            self.object("sharing", message);
        }
    }

    /// Semantics 4.9: what another result would need two user inputs to be one tensor for.
    fn one_tensor(&mut self, classes: &Classes, was: &Outcome, found: &Outcome) {
        let case = self.case;
        let names = inputs(&case.after);
        let key = |g: &Graph, l: &Late| (place(g, l.output), l.reads);
        let before: HashSet<_> = was.late.iter().map(|l| key(&case.before, l)).collect();
        for late in found.late.iter().filter(|l| !before.contains(&key(&case.after, l))) {
            let [a, b] = [late.reads, late.written].map(|i| self.text(names[i].0));
            let message = format!("{}: wrong if {a} and {b} were one tensor", self.output(late.output));
            self.warn("one_tensor", message);
        }
        // Of several writes to one tensor the last one stays.
        let last = |order: &[usize]| -> HashMap<Class, usize> {
            order.iter().map(|&input| (classes.of(names[input].3), input)).collect()
        };
        let (stayed, stays) = (last(&was.order), last(&found.order));
        for &input in &found.order {
            let class = classes.of(names[input].3);
            if stays[&class] == input
                && let Some(&other) = stayed.get(&class).filter(|&&other| other != input)
            {
                let [a, b] = [input, other].map(|i| self.text(names[i].0));
                self.warn("one_tensor", format!("{a}: written last, which would be {b} if they were one tensor"));
            }
        }
    }
}

/// The user outputs that are the value of some input's mutation: the caller may get that input for them.
fn given_to(graph: &Graph) -> HashSet<(usize, usize)> {
    let mut inputs_of: HashMap<usize, Vec<usize>> = HashMap::new();
    for m in mutations(graph) {
        inputs_of.entry(m.node).or_default().push(m.input);
    }
    let users = graph.outputs.iter().enumerate().filter_map(|(i, o)| match (o.role, &o.value) {
        (Role::User, &Arg::Value(node)) => Some((i, inputs_of.get(&node)?)),
        _ => None,
    });
    users.flat_map(|(i, inputs)| inputs.iter().map(move |&input| (i, input))).collect()
}

fn heap_of(run: &Run, body: Option<usize>) -> &Heap {
    body.map_or(&run.heap, |b| &run.bodies[b].heap)
}

/// The positions of each term.
fn by_term(terms: impl Iterator<Item = Term>) -> HashMap<Term, Vec<usize>> {
    let mut found: HashMap<Term, Vec<usize>> = HashMap::new();
    for (i, term) in terms.enumerate() {
        found.entry(term).or_default().push(i);
    }
    found
}

/// Each element with the number of equal terms before it.
fn numbered<T>(elements: impl Iterator<Item = (Term, T)>) -> Vec<(Term, usize, T)> {
    let mut seen: HashMap<Term, usize> = HashMap::new();
    let mut found = Vec::new();
    for (term, element) in elements {
        let count = seen.entry(term).or_default();
        found.push((term, *count, element));
        *count += 1;
    }
    found
}
