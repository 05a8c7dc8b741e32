//! Random small flows, against an interpreter with storages that knows nothing of the planner.
//!
//! The interpreter runs a flow twice: as it is, with all mutations written at once at the end, and as scheduled. A
//! storage holds a number; a node's number is a hash of what it reads, at the moment when it reads. Whether a view
//! shares storage, and with which of the values it may alias, is drawn at random too, since the schedule has to be
//! right for all of it. A node that writes over an operand while it reads it computes rubbish.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use mutcanon::flow::{Candidate, Flow, Node, Storage};
use mutcanon::flow_text;
use mutcanon::ids::ValueId;
use mutcanon::parallel_copy::Step;
use mutcanon::problem::Output;
use mutcanon::reinplace::{Schedule, Verdict, schedule};

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).unwrap()
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn value(&mut self, below: usize) -> ValueId {
        ValueId::new(self.below(below))
    }
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn random_flow(random: &mut Random) -> Flow {
    let placeholders = 1 + random.below(3);
    let nodes = placeholders + 1 + random.below(6);
    let mut flow = Flow::default();
    for i in 0..nodes {
        let mut node =
            Node { name: format!("%{i}"), storage: Storage::Placeholder, reads: Vec::new(), writes: Vec::new() };
        if i >= placeholders {
            node.reads = (0..=random.below(2)).map(|_| random.value(i)).collect();
            node.storage = if random.chance(25) { Storage::Alias(node.reads.clone()) } else { Storage::Fresh };
            if node.storage == Storage::Fresh && random.chance(4) {
                node.writes.push(random.value(i));
            }
        }
        flow.nodes.push(node);
    }
    for i in placeholders..nodes {
        let node = &flow.nodes[i];
        if node.storage == Storage::Fresh && node.reads.len() == 1 && node.writes.is_empty() && random.chance(40) {
            flow.identities.push(ValueId::new(i));
        }
    }
    for p in 0..placeholders {
        if random.chance(80) {
            let (target, value) = (ValueId::new(p), random.value(nodes));
            flow.outputs.push(Output::Mutation { target, value, pinned: false });
        }
    }
    for _ in 0..random.below(3) {
        let value = random.value(nodes);
        flow.outputs.push(Output::User(value));
    }
    for i in placeholders..nodes {
        if flow.nodes[i].storage != Storage::Fresh || !flow.nodes[i].writes.is_empty() {
            continue;
        }
        for _ in 0..random.below(3) {
            let over = if random.chance(70) {
                flow.nodes[i].reads[random.below(flow.nodes[i].reads.len())]
            } else {
                random.value(i)
            };
            // Such a node may read what it overwrites in one operand, but in no other.
            let mut operands = flow.nodes[i].reads.clone();
            if let Some(at) = operands.iter().position(|o| *o == over) {
                operands.remove(at);
            }
            // The part of a result that stands for the argument.
            let part = (i + 1..nodes).find(|&j| {
                flow.nodes[j].storage == Storage::Fresh
                    && flow.nodes[j].reads == [ValueId::new(i)]
                    && flow.nodes[j].writes.is_empty()
            });
            let result = ValueId::new(part.filter(|_| random.chance(30)).unwrap_or(i));
            flow.candidates.push(Candidate { node: ValueId::new(i), result, over, operands });
        }
    }
    flow
}

/// The state of a run: which storage each value has, and what the storages hold.
struct Run<'f> {
    flow: &'f Flow,
    /// For each view, the value whose storage it shares in this run.
    shares: &'f [Option<ValueId>],
    storage_of: Vec<usize>,
    holds: Vec<u64>,
    /// Where a value was put ahead of its node, as the part of another node's result.
    placed: HashMap<ValueId, usize>,
    /// For each identity that is left out, what its readers read.
    same_as: HashMap<ValueId, ValueId>,
}

impl<'f> Run<'f> {
    fn new(flow: &'f Flow, shares: &'f [Option<ValueId>]) -> Self {
        Run { flow, shares, storage_of: Vec::new(), holds: Vec::new(), placed: HashMap::new(), same_as: HashMap::new() }
    }

    fn read(&self, value: ValueId) -> u64 {
        if let Some(&same) = self.same_as.get(&value) {
            return self.read(same);
        }
        match self.shares[value.index()] {
            Some(base) => hash(&("view", value.0, self.read(base))),
            None => self.holds[self.storage_of[value.index()]],
        }
    }

    fn operands(&self, node: usize) -> Vec<u64> {
        self.flow.nodes[node].reads.iter().map(|&v| self.read(v)).collect()
    }

    fn allocate(&mut self, holds: u64) -> usize {
        self.holds.push(holds);
        self.holds.len() - 1
    }

    fn node(&mut self, i: usize, over: Option<&Candidate>) {
        let me = ValueId::new(i);
        let node = &self.flow.nodes[i];
        if let Some(base) = self.shares[i] {
            self.storage_of.push(self.storage_of[base.index()]);
            return;
        }
        if let Some(same) = self.same_as.get(&me) {
            self.storage_of.push(self.storage_of[same.index()]);
            return;
        }
        if let Some(&storage) = self.placed.get(&me) {
            self.storage_of.push(storage);
            return;
        }
        let mut result = match node.storage {
            Storage::Placeholder => hash(&("input", i)),
            // A view that became a copy holds what the view would show.
            Storage::Alias(_) => hash(&("view", me.0, self.operands(i)[0])),
            Storage::Fresh if self.flow.identities.contains(&me) => self.operands(i)[0],
            Storage::Fresh => hash(&(i, self.operands(i))),
        };
        for w in &node.writes {
            self.holds[self.storage_of[w.index()]] = hash(&("written", i, result));
        }
        let Some(c) = over else {
            let storage = self.allocate(result);
            self.storage_of.push(storage);
            return;
        };
        let target = self.storage_of[c.over.index()];
        if c.operands.iter().any(|o| self.storage_of[o.index()] == target) {
            result = hash(&("rubbish", i));
        }
        if c.result == me {
            self.holds[target] = result;
            self.storage_of.push(target);
        } else {
            let storage = self.allocate(result);
            self.storage_of.push(storage);
            let is_identity = self.flow.identities.contains(&c.result);
            self.holds[target] = if is_identity { result } else { hash(&(c.result.index(), vec![result])) };
            self.placed.insert(c.result, target);
        }
    }
}

fn value_of(output: &Output) -> ValueId {
    match output {
        Output::Mutation { value, .. } | Output::User(value) => *value,
        Output::Other => unreachable!(),
    }
}

/// What each output is in the end: a target's storage, or a user output.
fn reference(flow: &Flow, shares: &[Option<ValueId>]) -> Vec<u64> {
    let mut run = Run::new(flow, shares);
    (0..flow.nodes.len()).for_each(|i| run.node(i, None));
    flow.outputs.iter().map(|o| run.read(value_of(o))).collect()
}

fn scheduled(flow: &Flow, plan: &Schedule, shares: &[Option<ValueId>]) -> Vec<u64> {
    let mut run = Run::new(flow, shares);
    let mut over = HashMap::new();
    for (c, verdict) in flow.candidates.iter().zip(&plan.verdicts) {
        if *verdict == Verdict::InPlace {
            assert!(over.insert(c.node.index(), c).is_none());
        }
    }
    for (&v, _) in flow.identities.iter().zip(&plan.left_out).filter(|(_, is_left_out)| **is_left_out) {
        run.same_as.insert(v, flow.nodes[v.index()].reads[0]);
    }
    let mut saved = HashMap::new();
    let mut steps = plan.steps.iter().peekable();
    for i in 0..=flow.nodes.len() {
        while let Some(placed) = steps.next_if(|p| p.before == i) {
            match placed.step {
                Step::Save(o) => {
                    saved.insert(o, run.read(value_of(&flow.outputs[o])));
                }
                Step::Write(o) => {
                    let Output::Mutation { target, value, .. } = flow.outputs[o] else {
                        panic!("writes a user output")
                    };
                    let new = saved.get(&o).copied().unwrap_or_else(|| run.read(value));
                    run.holds[run.storage_of[target.index()]] = new;
                }
            }
        }
        if i < flow.nodes.len() {
            run.node(i, over.get(&i).copied());
        }
    }
    assert!(steps.next().is_none(), "a step is out of order");
    let outputs = flow.outputs.iter().enumerate();
    outputs
        .map(|(o, output)| match output {
            Output::Mutation { target, .. } => run.read(*target),
            _ => saved.get(&o).copied().unwrap_or_else(|| run.read(value_of(output))),
        })
        .collect()
}

#[test]
fn every_schedule_is_right() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let (mut in_place, mut early, mut saves, mut user_saves, mut left_out) = (0, 0, 0, 0, 0);
    for _ in 0..400_000 {
        let flow = random_flow(&mut random);
        // Two candidates for different parts of one node's result are beyond this interpreter.
        let mut nodes: Vec<_> = flow.candidates.iter().map(|c| (c.node, c.result)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.windows(2).any(|w| w[0].0 == w[1].0) {
            continue;
        }
        flow.validate().unwrap();
        let plan = schedule(&flow);
        in_place += plan.verdicts.iter().filter(|v| **v == Verdict::InPlace).count();
        left_out += plan.left_out.iter().filter(|o| **o).count();
        early += plan.steps.iter().filter(|p| p.before < flow.nodes.len()).count();
        for placed in &plan.steps {
            if let Step::Save(o) = placed.step {
                saves += 1;
                user_saves += usize::from(matches!(flow.outputs[o], Output::User(_)));
            }
        }
        for _ in 0..3 {
            let shares: Vec<_> = flow
                .nodes
                .iter()
                .map(|n| match &n.storage {
                    // A copy holds what the view of its first operand would show.
                    Storage::Alias(of) if random.chance(80) => {
                        Some(if random.chance(70) { of[0] } else { of[random.below(of.len())] })
                    }
                    _ => None,
                })
                .collect();
            let found = scheduled(&flow, &plan, &shares);
            let wanted = reference(&flow, &shares);
            assert_eq!(found, wanted, "{}{}", flow_text::print(&flow), flow_text::print_schedule(&flow, &plan));
        }
    }
    // The test must not be right for want of anything to do.
    assert!(in_place > 20_000 && early > 20_000 && saves > 10_000 && user_saves > 1_000);
    assert!(left_out > 20_000);
}

/// One statement for each number.
fn lines(numbers: std::ops::Range<usize>, line: impl Fn(usize) -> String) -> Vec<String> {
    numbers.map(line).collect()
}

#[test]
fn a_shift_register_of_eight_taps_takes_eight_writes_and_no_temporary() {
    let text = [
        lines(0..8, |i| format!("%s{i} = placeholder")),
        vec!["%x = placeholder".into(), "%y = fresh %s7".into(), "mutate %s0 <- %x".into()],
        lines(1..8, |i| format!("mutate %s{i} <- %s{}", i - 1)),
        vec!["output %y".into()],
    ];
    let flow = flow_text::parse(&text.concat().join("\n")).unwrap();
    let plan = schedule(&flow);
    let order: Vec<_> = plan.steps.iter().map(|p| p.step).collect();
    assert_eq!(order, (0..8).rev().map(Step::Write).collect::<Vec<_>>());
}

#[test]
fn a_thousand_caches_are_quick() {
    let n = 1000;
    let text = [
        lines(0..n, |i| format!("%c{i} = placeholder")),
        vec!["%x = placeholder".into(), "%h0 = fresh %x".into()],
        lines(0..n, |i| format!("%p{i} = fresh %c{i} %h{i}\n%h{} = fresh %p{i} %h{i}", i + 1)),
        lines(0..n, |i| format!("mutate %c{i} <- %p{i}")),
        vec![format!("output %h{n}")],
        lines(0..n, |i| format!("candidate %p{i} over %c{i} reads %h{i}")),
    ];
    let flow = flow_text::parse(&text.concat().join("\n")).unwrap();
    let plan = schedule(&flow);
    assert!(plan.verdicts.iter().all(|v| *v == Verdict::InPlace));
    assert!(plan.steps.is_empty());
}
