//! What the caller sees when somebody carries out the mutations.
//!
//! By its meaning a program assigns in parallel: all values are computed from the state on entry, then every target
//! receives its own. Those who run programs write one target after another, and each has its habits; they are imitated
//! here on the heap. A user output is looked at when all is written, since that is when the caller sees it.

use std::collections::HashMap;

use crate::check::heap::ValueId;
use crate::check::machine::{Run, World, convert, convert_term};
use crate::check::program::{Arg, Consumer, Graph, Op, Role, Step, Text};
use crate::check::storage::{Storage, StorageId, inputs};
use crate::check::terms::Term;
use crate::check::types::Class;

/// A mutation output.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// Its number among all outputs.
    pub output: usize,
    /// The number of the input that it mutates.
    pub input: usize,
    /// The node whose value the input receives.
    pub node: usize,
    /// The kind of the input.
    pub kind: Text,
}

/// What a user output is in the end.
#[derive(Clone, Copy, Debug)]
pub struct Returned {
    /// Its number among all outputs.
    pub output: usize,
    /// Its value.
    pub term: Term,
    /// Where it lives.
    pub storage: StorageId,
}

/// What is read after something else was written: harmless unless the two are one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Late {
    /// The output whose value is read.
    pub output: usize,
    /// The user input whose storage it may live in.
    pub reads: usize,
    /// A user input of the same type that is written before.
    pub written: usize,
}

/// What is left when a program was run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The user outputs, and whatever else is no mutation.
    pub returned: Vec<Returned>,
    /// By meaning only: the value of each mutation output, as it is and as the input holds it.
    pub values: Vec<(usize, Term, Term)>,
    /// What each input holds.
    pub contents: Vec<Term>,
    /// What went wrong on the way: an output, and what it is.
    pub trouble: Vec<(usize, String)>,
    /// Reads that would be too late if inputs were one tensor.
    pub late: Vec<Late>,
    /// The user inputs in the order in which they are written.
    pub order: Vec<usize>,
}

/// The inputs by kind and target.
#[must_use]
pub fn inputs_by_target(graph: &Graph) -> HashMap<(Text, Text), usize> {
    let inputs = graph.nodes.iter().filter_map(|n| match n.op {
        Op::Input(kind, target) => Some((kind, target)),
        _ => None,
    });
    inputs.enumerate().map(|(i, key)| (key, i)).collect()
}

/// The mutation outputs whose target is an input and whose value is a node; the others are somebody else's concern.
#[must_use]
pub fn mutations(graph: &Graph) -> Vec<Mutation> {
    let by_target = inputs_by_target(graph);
    let outputs = graph.outputs.iter().enumerate();
    let found = outputs.filter_map(|(output, o)| match (o.role, &o.value) {
        (Role::Mutation(kind, target), &Arg::Value(node)) => {
            by_target.get(&(kind, target)).map(|&input| Mutation { output, input, node, kind })
        }
        _ => None,
    });
    found.collect()
}

/// Carries out the mutations by their meaning.
pub fn in_parallel(world: &mut World<'_>, run: &mut Run, graph: &Graph) -> Outcome {
    let mut outcome = Outcome::default();
    returned(world, run, graph, &HashMap::new(), &mut outcome);
    let mutations = mutations(graph);
    outcome.contents = run.inputs.iter().map(|&input| run.heap.read(&mut world.arena, input)).collect();
    for m in &mutations {
        let value = run.of_node[m.node];
        let held = convert(world, &mut run.heap, run.inputs[m.input], value);
        outcome.values.push((m.output, run.heap.read(&mut world.arena, value), held));
        outcome.contents[m.input] = held;
    }
    outcome
}

/// Carries out the mutations as the consumer does it.
pub fn in_sequence(world: &mut World<'_>, run: &mut Run, graph: &Graph, consumer: &Consumer) -> Outcome {
    let mutations = mutations(graph);
    let watch = Watch::new(world, run, graph);
    let mut writer = Writer { world, run, watch, trouble: Vec::new(), saved: HashMap::new() };
    let mut redirected = HashMap::new();
    match consumer {
        Consumer::Torch => {
            for m in &mutations {
                writer.write(m);
                redirected.insert(m.node, m.input);
            }
        }
        Consumer::ExecuTorch => writer.like_executorch(&mutations),
        Consumer::Steps(steps) => writer.by_steps(graph.outputs.len(), &mutations, steps),
        Consumer::Nobody => {}
    }
    let Writer { mut watch, trouble, .. } = writer;
    let mut outcome = Outcome { trouble, ..Outcome::default() };
    returned(world, run, graph, &redirected, &mut outcome);
    for r in &outcome.returned {
        watch.read(r.output, &inputs(run.heap.storages(), r.storage));
    }
    outcome.contents = run.inputs.iter().map(|&input| run.heap.read(&mut world.arena, input)).collect();
    (outcome.late, outcome.order) = (watch.late, watch.order);
    outcome
}

/// Reads what is returned besides the mutations; some of it is replaced by an input.
fn returned(
    world: &mut World<'_>,
    run: &mut Run,
    graph: &Graph,
    redirected: &HashMap<usize, usize>,
    outcome: &mut Outcome,
) {
    for (output, o) in graph.outputs.iter().enumerate() {
        let (Role::User | Role::Other, &Arg::Value(node)) = (o.role, &o.value) else { continue };
        let value = redirected.get(&node).map_or(run.of_node[node], |&input| run.inputs[input]);
        for part in run.heap.parts(value) {
            let term = run.heap.read(&mut world.arena, part);
            outcome.returned.push(Returned { output, term, storage: run.heap.get(part).storage });
        }
    }
}

struct Writer<'a, 'c> {
    world: &'a mut World<'c>,
    run: &'a mut Run,
    watch: Watch,
    trouble: Vec<(usize, String)>,
    /// Values in temporaries, by output.
    saved: HashMap<usize, Term>,
}

impl Writer<'_, '_> {
    fn object(&mut self, output: usize, what: &str) {
        self.trouble.push((output, what.to_owned()));
    }

    /// `copy_(target, value)`, or `copy_(target, temporary)`.
    fn write(&mut self, m: &Mutation) {
        let (target, value) = (self.run.inputs[m.input], self.run.of_node[m.node]);
        let term = if let Some(&term) = self.saved.get(&m.output) {
            convert_term(self.world, &self.run.heap, target, value, term)
        } else if self.run.heap.identity(value) == target {
            return;
        } else {
            let read = self.inputs_of(value);
            if read.contains(&m.input) {
                self.object(m.output, "its value is another view of the target itself");
            }
            self.watch.read(m.output, &read);
            convert(self.world, &mut self.run.heap, target, value)
        };
        self.run.heap.write(&mut self.world.arena, target, term);
        self.watch.write(m.input);
    }

    fn inputs_of(&self, value: ValueId) -> Vec<usize> {
        inputs(self.run.heap.storages(), self.run.heap.get(value).storage)
    }

    /// Parameters are not written. A value that is an input of the target's kind counts as written, whichever it is;
    /// the others are copied and become the first outputs, so that the signature names the wrong ones where the two
    /// kinds of output are mixed.
    fn like_executorch(&mut self, mutations: &[Mutation]) {
        let is_written = |m: &&Mutation| self.world.case.texts.get(m.kind) != "parameter";
        let mutations: Vec<&Mutation> = mutations.iter().filter(is_written).collect();
        let (mut copied, mut in_place) = (Vec::new(), Vec::new());
        for &m in &mutations {
            if let Some(input) = self.input_that_is(m) {
                in_place.push(input);
            } else {
                self.write(m);
                copied.push(m.input);
            }
        }
        let named = copied.into_iter().chain(in_place);
        for (m, _) in mutations.into_iter().zip(named).filter(|(m, input)| m.input != *input) {
            self.object(m.output, "the signature names the output of another target");
        }
    }

    /// The input of the right kind that a mutation's value is.
    fn input_that_is(&self, m: &Mutation) -> Option<usize> {
        let value = self.run.heap.identity(self.run.of_node[m.node]);
        let Storage::Input(input) = self.run.heap.storages()[self.run.heap.get(value).storage] else { return None };
        (self.run.inputs[input] == value && self.watch.kinds[input] == m.kind).then_some(input)
    }

    fn by_steps(&mut self, outputs: usize, mutations: &[Mutation], steps: &[Step]) {
        let mut waiting: Vec<Option<&Mutation>> = vec![None; outputs];
        for m in mutations {
            waiting[m.output] = Some(m);
        }
        for step in steps {
            let (Step::Save(output) | Step::Write(output)) = *step;
            let Some(m) = waiting.get(output).copied().flatten() else {
                self.object(output, "the write-back has a step for no mutation, or for one that is done");
                continue;
            };
            if matches!(step, Step::Save(_)) {
                let value = self.run.of_node[m.node];
                self.watch.read(output, &self.inputs_of(value));
                let term = self.run.heap.read(&mut self.world.arena, value);
                self.saved.insert(output, term);
            } else {
                waiting[output] = None;
                self.write(m);
            }
        }
        for m in waiting.into_iter().flatten() {
            self.object(m.output, "the write-back forgets it");
        }
    }
}

/// Notes what would go wrong if user inputs of one type were one tensor (semantics 4.9).
struct Watch {
    kinds: Vec<Text>,
    /// The type of each user input.
    user: Vec<Option<Class>>,
    /// For each type, the first two inputs that are written.
    first: HashMap<Class, Vec<usize>>,
    order: Vec<usize>,
    late: Vec<Late>,
}

impl Watch {
    fn new(world: &World<'_>, run: &Run, graph: &Graph) -> Self {
        let kinds: Vec<Text> = graph.nodes.iter().filter_map(|n| input_kind(n.op)).collect();
        let class = |(&kind, &value): (&Text, &ValueId)| {
            (world.case.texts.get(kind) == "user_input").then(|| run.heap.get(value).class)
        };
        let user = kinds.iter().zip(&run.inputs).map(class).collect();
        Watch { kinds, user, first: HashMap::new(), order: Vec::new(), late: Vec::new() }
    }

    fn write(&mut self, input: usize) {
        let Some(class) = self.user[input] else { return };
        self.order.push(input);
        let first = self.first.entry(class).or_default();
        if first.len() < 2 && !first.contains(&input) {
            first.push(input);
        }
    }

    fn read(&mut self, output: usize, roots: &[usize]) {
        for &reads in roots {
            let Some(class) = self.user[reads] else { continue };
            let other = self.first.get(&class).into_iter().flatten().find(|&&w| w != reads);
            self.late.extend(other.map(|&written| Late { output, reads, written }));
        }
    }
}

fn input_kind(op: Op) -> Option<Text> {
    match op {
        Op::Input(kind, _) => Some(kind),
        _ => None,
    }
}
