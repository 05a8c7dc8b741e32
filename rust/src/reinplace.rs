//! Where each result is written: over the value that it replaces, or to its target by a copy, and then when.
//!
//! *In place* (semantics 5). A node may overwrite a value when nobody reads what was there after it ran. Readers are
//! the nodes that follow, through whatever alias, and the outputs: a user output reads at the end of the graph, a
//! mutation's value when it is written back. Where the storage is a placeholder's, the last thing written there must
//! be what the target becomes, or the target must be written once more after the last reader of what is there.
//!
//! *Write-back*. The other mutations become copies. They are ordered by [`crate::parallel_copy`], and each goes to the
//! earliest position at which its value exists and nobody needs the target's old value any more: a value that is
//! written early does not occupy memory until the end, and an early reader of a target makes room for an in-place
//! write to it.
//!
//! All write-backs are placed as if nothing were done in place. Doing something in place only takes a write-back away,
//! and is allowed only where it keeps every other one at its position, so that no decision has to be revised.
//!
//! *Identities*. A node that only copies its operand is left out, and its readers read the operand, where nothing
//! writes to the operand between the copy and the last of them. That is decided last, so that it prevents no write.
//!
//! Candidates are visited backwards. The readers of a candidate's result are then known in full, those included that
//! reach it through later in-place writes, and each question is about two storages: the one that would be overwritten
//! and the one that would cease to exist. Values that may share storage are kept in one class by union-find.

use crate::flow::{Candidate, Flow, Storage};
use crate::ids::ValueId;
use crate::parallel_copy::{Move, Step, sequence};
use crate::problem::Output;
use crate::reasons::InPlaceCode as Code;

/// Why a candidate stays functional, and who is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of reason.
    pub code: Code,
    /// A reader, an output's value or an operand.
    pub blame: Option<ValueId>,
}

/// What becomes of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The node writes over the value.
    InPlace,
    /// The node writes elsewhere.
    Refused(Refusal),
    /// Another candidate for the same result is in place.
    Superseded,
}

/// A step of the write-back at its position. `Save` of a user output means that it needs a copy of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The node before which it happens.
    pub before: usize,
    /// The step; its number is an output.
    pub step: Step,
}

/// The result of [`schedule`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// One for each candidate.
    pub verdicts: Vec<Verdict>,
    /// In execution order. A mutation without a step is in place, or changes nothing.
    pub steps: Vec<Placed>,
    /// For each identity, whether its readers can read its operand.
    pub left_out: Vec<bool>,
}

/// Decides. The flow must have been validated.
#[must_use]
pub fn schedule(flow: &Flow) -> Schedule {
    let classes = Classes::new(flow);
    let times = Times::new(flow, &classes);
    let mut decider = Decider {
        flow,
        classes,
        times,
        mutation_of: mutations(flow),
        in_place: vec![false; flow.outputs.len()],
        must_be_copied: vec![false; flow.outputs.len()],
    };
    let mut order: Vec<_> = (0..flow.candidates.len()).collect();
    order.sort_by_key(|&c| (std::cmp::Reverse(flow.candidates[c].node), c));
    let mut verdicts = vec![Verdict::Superseded; flow.candidates.len()];
    let mut is_settled = vec![false; flow.nodes.len()];
    for c in order {
        let result = flow.candidates[c].result.index();
        if is_settled[result] {
            continue;
        }
        verdicts[c] = match decider.decide(c) {
            Ok(()) => Verdict::InPlace,
            Err(refusal) => Verdict::Refused(refusal),
        };
        is_settled[result] = verdicts[c] == Verdict::InPlace;
    }
    let Decider { mut classes, times, in_place, .. } = decider;
    let steps = times.steps(|output| in_place[output]);
    let left_out = leave_out(flow, &mut classes, &verdicts, &steps);
    Schedule { verdicts, steps, left_out }
}

/// Decides about the identities, when all writes are known.
fn leave_out(flow: &Flow, classes: &mut Classes, verdicts: &[Verdict], steps: &[Placed]) -> Vec<bool> {
    // A moment is twice a position, or one more for what happens at a node.
    let at = |node: ValueId| 2 * node.index() + 1;
    let mut writes = Vec::new();
    let mut is_writer = vec![false; flow.nodes.len()];
    for (c, _) in flow.candidates.iter().zip(verdicts).filter(|(_, v)| **v == Verdict::InPlace) {
        writes.push((c.over, at(c.node)));
        is_writer[c.node.index()] = true;
    }
    for placed in steps {
        if let Step::Write(o) = placed.step
            && let Output::Mutation { target, .. } = flow.outputs[o]
        {
            writes.push((target, 2 * placed.before));
        }
    }
    for (i, node) in flow.nodes.iter().enumerate() {
        writes.extend(node.writes.iter().map(|&w| (w, at(ValueId::new(i)))));
    }
    let mut written = vec![Vec::new(); flow.nodes.len()];
    for (value, moment) in writes {
        written[classes.of(value).index()].push(moment);
    }
    let decide = |&copy: &ValueId| {
        let operand = flow.node(copy).reads[0];
        let (old, new) = (classes.of(operand), classes.of(copy));
        let is_private = !is_writer[copy.index()]
            && new != old
            && classes.outputs[new.index()].is_empty()
            && classes.placeholders[new.index()].is_empty()
            && written[new.index()].is_empty();
        let last = classes.last_read[new.index()].unwrap_or(copy);
        let is_written_meanwhile = |&moment: &usize| (at(copy)..=at(last)).contains(&moment);
        if !is_private || written[old.index()].iter().any(is_written_meanwhile) {
            return false;
        }
        let known = std::mem::take(&mut written[old.index()]);
        classes.union(operand, copy);
        written[classes.of(operand).index()] = known;
        true
    };
    flow.identities.iter().map(decide).collect()
}

/// Classes of values that may share storage, with who reads and writes each.
struct Classes {
    parent: Vec<ValueId>,
    /// For each class, its last reader (or in-place write) and the last node that wrote it before we came.
    last_read: Vec<Option<ValueId>>,
    last_write: Vec<Option<ValueId>>,
    placeholders: Vec<Vec<ValueId>>,
    outputs: Vec<Vec<usize>>,
    /// The value whose storage a value has exactly, as far as decided: itself, or what was overwritten with it.
    exact: Vec<ValueId>,
}

impl Classes {
    fn new(flow: &Flow) -> Self {
        let n = flow.nodes.len();
        let all = || (0..n).map(ValueId::new).collect::<Vec<_>>();
        let mut classes = Classes {
            parent: all(),
            last_read: vec![None; n],
            last_write: vec![None; n],
            placeholders: vec![Vec::new(); n],
            outputs: vec![Vec::new(); n],
            exact: all(),
        };
        for (i, node) in flow.nodes.iter().enumerate() {
            let me = ValueId::new(i);
            match &node.storage {
                Storage::Placeholder => classes.placeholders[i].push(me),
                Storage::Fresh => {}
                Storage::Alias(of) => of.iter().for_each(|&v| classes.union(me, v)),
            }
        }
        for (i, node) in flow.nodes.iter().enumerate() {
            let me = Some(ValueId::new(i));
            for &v in &node.reads {
                let class = classes.of(v);
                classes.last_read[class.index()] = me;
            }
            for &v in &node.writes {
                let class = classes.of(v);
                classes.last_write[class.index()] = me;
            }
        }
        for (i, output) in flow.outputs.iter().enumerate() {
            if let Some(value) = value_of(output) {
                let class = classes.of(value);
                classes.outputs[class.index()].push(i);
            }
        }
        classes
    }

    fn of(&self, mut value: ValueId) -> ValueId {
        while self.parent[value.index()] != value {
            value = self.parent[value.index()];
        }
        value
    }

    /// Merges two classes; the one with the larger number hangs below the other, which keeps chains short because
    /// operands come first.
    fn union(&mut self, a: ValueId, b: ValueId) {
        let (a, b) = (self.of(a), self.of(b));
        if a == b {
            return;
        }
        let (top, below) = (a.min(b), a.max(b));
        self.parent[below.index()] = top;
        let (t, u) = (top.index(), below.index());
        self.last_read[t] = self.last_read[t].max(self.last_read[u]);
        self.last_write[t] = self.last_write[t].max(self.last_write[u]);
        let placeholders = std::mem::take(&mut self.placeholders[u]);
        self.placeholders[t].extend(placeholders);
        let outputs = std::mem::take(&mut self.outputs[u]);
        self.outputs[t].extend(outputs);
    }

    fn exactly(&self, mut value: ValueId) -> ValueId {
        while self.exact[value.index()] != value {
            value = self.exact[value.index()];
        }
        value
    }

    /// The first position after the last node that reads or writes the class.
    fn quiet(&self, class: ValueId) -> usize {
        let last = self.last_read[class.index()].max(self.last_write[class.index()]);
        last.map_or(0, |v| v.index() + 1)
    }
}

fn value_of(output: &Output) -> Option<ValueId> {
    match output {
        Output::Mutation { value, .. } | Output::User(value) => Some(*value),
        Output::Other => None,
    }
}

/// The write-backs, placed as if nothing were in place.
struct Times {
    /// The steps in an order that is right when all are at the same position.
    sequence: Vec<Step>,
    /// For each output, the position of its write and of its save.
    write: Vec<Option<usize>>,
    save: Vec<Option<usize>>,
}

impl Times {
    fn new(flow: &Flow, classes: &Classes) -> Self {
        let mutation_of = mutations(flow);
        let mut moves = Vec::new();
        let mut output_of = Vec::new();
        for (i, output) in flow.outputs.iter().enumerate() {
            let Output::Mutation { target, value, .. } = *output else { continue };
            let class = classes.of(value);
            let placeholders = &classes.placeholders[class.index()];
            let reads = placeholders.iter().copied().filter(|p| mutation_of[p.index()].is_some()).collect();
            moves.push(Move { target, reads, identity: value == target, pinned: false, cost: 0 });
            output_of.push(i);
        }
        // For each output, the outputs whose values may share storage with its target.
        let mut readers = vec![Vec::new(); flow.outputs.len()];
        for (m, mv) in moves.iter().enumerate().filter(|(_, mv)| !mv.identity) {
            for writer in mv.reads.iter().filter_map(|p| mutation_of[p.index()]).filter(|w| *w != output_of[m]) {
                readers[writer].push(output_of[m]);
            }
        }
        let none = vec![None; flow.outputs.len()];
        let times = Times { sequence: Vec::new(), write: none.clone(), save: none };
        let mut placing =
            Placing { flow, classes, start: flow.start(), readers, has_save: vec![false; flow.outputs.len()], times };
        for step in sequence(&moves) {
            let (step, is_identity) = match step {
                Step::Save(m) => (Step::Save(output_of[m]), false),
                Step::Write(m) => (Step::Write(output_of[m]), moves[m].identity),
            };
            placing.times.sequence.push(step);
            match step {
                Step::Save(output) => placing.has_save[output] = true,
                Step::Write(_) if is_identity => {}
                Step::Write(output) => placing.write(output),
            }
        }
        placing.times
    }

    /// The position from which on nobody needs the value of `output` in its storage; the end for a user output.
    fn last_needed(&self, output: usize) -> Option<usize> {
        self.save[output].or(self.write[output])
    }

    fn steps(&self, is_in_place: impl Fn(usize) -> bool) -> Vec<Placed> {
        let is_mutation = |o: usize| self.write[o].is_some();
        let users = (0..self.save.len()).filter(|&o| !is_mutation(o)).map(Step::Save);
        let mut steps: Vec<_> = users
            .chain(self.sequence.iter().copied())
            .filter_map(|step| {
                let before = match step {
                    Step::Save(o) => self.save[o],
                    Step::Write(o) => self.write[o].filter(|_| !is_in_place(o)),
                };
                before.map(|before| Placed { before, step })
            })
            .collect();
        steps.sort_by_key(|p| p.before);
        steps
    }
}

/// One pass over the sequence, which gives each step its position.
struct Placing<'a> {
    flow: &'a Flow,
    classes: &'a Classes,
    start: usize,
    readers: Vec<Vec<usize>>,
    has_save: Vec<bool>,
    times: Times,
}

impl Placing<'_> {
    /// Places the write of a mutation, and the saves that it makes necessary.
    fn write(&mut self, output: usize) {
        let Output::Mutation { target, .. } = self.flow.outputs[output] else { return };
        let class = self.classes.of(target);
        let save = self.times.save[output].filter(|_| self.has_save[output]);
        let mut at = save.unwrap_or_else(|| self.ready(output)).max(self.classes.quiet(class));
        let mut rescued = Vec::new();
        for &reader in &self.readers[output] {
            if self.has_save[reader] {
                rescued.push(reader);
            } else {
                at = at.max(self.times.write[reader].unwrap_or(self.start));
            }
        }
        if self.has_save[output] && save.is_none() {
            rescued.push(output);
        }
        // A user output that may be the target's old value gets a copy of its own.
        let is_user = |o: &&usize| matches!(self.flow.outputs[**o], Output::User(_));
        rescued.extend(self.classes.outputs[class.index()].iter().filter(is_user));
        at = rescued.iter().fold(at, |at, &o| at.max(self.ready(o)));
        for o in rescued {
            let before = self.times.save[o].unwrap_or(at);
            self.times.save[o] = Some(before.min(at));
        }
        self.times.write[output] = Some(at);
    }

    /// When the value of an output is there: it is computed, and nothing writes to its storage any more.
    fn ready(&self, output: usize) -> usize {
        let Some(value) = value_of(&self.flow.outputs[output]) else { return self.start };
        let written = self.classes.last_write[self.classes.of(value).index()];
        (value.max(written.unwrap_or(value)).index() + 1).max(self.start)
    }
}

/// For each placeholder, the output that mutates it.
fn mutations(flow: &Flow) -> Vec<Option<usize>> {
    let mut mutation_of = vec![None; flow.nodes.len()];
    for (i, output) in flow.outputs.iter().enumerate() {
        if let Output::Mutation { target, .. } = output {
            mutation_of[target.index()] = Some(i);
        }
    }
    mutation_of
}

struct Decider<'f> {
    flow: &'f Flow,
    classes: Classes,
    times: Times,
    mutation_of: Vec<Option<usize>>,
    /// For each output, whether it is a mutation whose value is computed in its target's storage.
    in_place: Vec<bool>,
    /// For each output, whether a decision relies on its being copied at its position.
    must_be_copied: Vec<bool>,
}

impl Decider<'_> {
    fn decide(&mut self, candidate: usize) -> Result<(), Refusal> {
        let c = &self.flow.candidates[candidate];
        let (old, new) = (self.classes.of(c.over), self.classes.of(c.result));
        let refuse = |code, blame| Err(Refusal { code, blame });
        let is_view = |v: ValueId| matches!(self.flow.node(v).storage, Storage::Alias(_));
        // Both storages must be known exactly, not by "may alias".
        let is_placeholder = self.flow.node(c.over).storage == Storage::Placeholder;
        let known = usize::from(is_placeholder);
        let elsewhere = self.classes.placeholders[old.index()].len() != known;
        if is_view(c.over) || is_view(c.result) || elsewhere || !self.classes.placeholders[new.index()].is_empty() {
            return refuse(Code::View, Some(c.over));
        }
        if old == new {
            return refuse(Code::Operand, Some(c.over));
        }
        let node = self.classes.of(c.node);
        if let Some(writer) = [old, new, node].iter().find_map(|class| self.classes.last_write[class.index()]) {
            return refuse(Code::Written, Some(writer));
        }
        if let Some(operand) = c.operands.iter().find(|&&o| self.classes.of(o) == old) {
            return refuse(Code::Operand, Some(*operand));
        }
        if let Some(reader) = self.classes.last_read[old.index()].filter(|r| *r > c.node) {
            return refuse(Code::ReadLater, Some(reader));
        }
        let mutation = self.mutation_of[c.over.index()];
        if is_placeholder && mutation.is_none() {
            return refuse(Code::NotMutated, Some(c.over));
        }
        let written_before = self.classes.outputs[old.index()].clone();
        for &output in &written_before {
            let blame = value_of(&self.flow.outputs[output]);
            if matches!(self.flow.outputs[output], Output::User(_)) {
                return refuse(Code::Returned, blame);
            }
            // An early write-back has read the old value by then.
            let needed = self.times.last_needed(output).filter(|_| !self.in_place[output]);
            if needed.is_none_or(|position| position > c.node.index()) {
                return refuse(Code::WrittenBackLater, blame);
            }
        }
        if let Some(mutation) = mutation {
            self.becomes(mutation, c, new)?;
        }
        for output in written_before {
            self.must_be_copied[output] = true;
        }
        self.accept(c);
        Ok(())
    }

    /// Checks that the target ends as it should when `c` writes to its storage (semantics 5.a).
    fn becomes(&mut self, mutation: usize, c: &Candidate, new: ValueId) -> Result<(), Refusal> {
        let refuse = |code, blame| Err(Refusal { code, blame });
        let Output::Mutation { value, .. } = self.flow.outputs[mutation] else { return Ok(()) };
        if self.classes.of(value) == new {
            if self.classes.exactly(value) != self.classes.exactly(c.result) {
                return refuse(Code::View, Some(value));
            }
            // Something later was allowed to overwrite the value, because it would have been copied by then.
            if self.must_be_copied[mutation] {
                return refuse(Code::Overwritten, Some(value));
            }
            self.in_place[mutation] = true;
            return Ok(());
        }
        // The storage serves for a while, until the target is written back.
        if let Some(&output) = self.classes.outputs[new.index()].first() {
            return refuse(Code::Overwritten, value_of(&self.flow.outputs[output]));
        }
        let last = self.classes.last_read[new.index()].unwrap_or(c.node).max(c.node);
        if self.times.write[mutation].is_none_or(|position| position <= last.index()) {
            return refuse(Code::Overwritten, Some(last));
        }
        Ok(())
    }

    fn accept(&mut self, c: &Candidate) {
        let (result, over) = (self.classes.exactly(c.result), self.classes.exactly(c.over));
        self.classes.exact[result.index()] = over;
        self.classes.union(c.result, c.over);
        // The write is the last thing that happens to the storage where nobody reads the result.
        let class = self.classes.of(c.over);
        let last = &mut self.classes.last_read[class.index()];
        *last = (*last).max(Some(c.node));
    }
}
