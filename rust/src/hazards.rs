//! Which copies are needed although they are redundant by type (semantics 4).
//!
//! A copy gives its reader storage of its own, and a node of its own. Suppose every redundant copy collapsed; some
//! output may then share storage with a placeholder, with another output or with another target, or be the very node
//! of another output. For each such conflict the *outermost* redundant copies on the output's alias paths stay (its
//! *frontier*): what the output shared storage with originally is then what it shares storage with again. An output
//! that has no frontier, or none that could help, was in conflict before we came, and gets a new copy.
//!
//! Keeping a copy can only remove sharing, so the conflicts are looked for again until none is left. Conflicts are
//! settled in output order and outputs without a frontier come first, because they have no choice; the result does
//! not depend on the order in which values are visited.

use std::collections::BTreeMap;

use crate::faults::{Fault, is_seeded};
use crate::ids::ValueId;
use crate::parallel_copy::{Move, Step, sequence};
use crate::plan::Form;
use crate::problem::{Def, Output, Problem};
use crate::reasons::{Code, KeepReason};
use crate::redundancy::compare;
use crate::storage::View;

/// How the redundant copies and the outputs are to be treated.
#[derive(Clone, Debug, Default)]
pub struct Settlement {
    /// For each value, whether it is a copy that collapses.
    pub collapsed: Vec<bool>,
    /// Redundant copies that stay.
    pub kept: BTreeMap<ValueId, KeepReason>,
    /// Outputs that need a copy which the program does not have.
    pub inserted: BTreeMap<usize, KeepReason>,
    /// The mutation outputs, in the order in which they are to stand.
    pub order: Vec<usize>,
}

/// Decides which of the `redundant` copies stay.
#[must_use]
pub fn settle(problem: &Problem, redundant: Vec<bool>, form: Form) -> Settlement {
    let mut settlement = Settlement { collapsed: redundant, ..Settlement::default() };
    keep_written(problem, &mut settlement);
    let mut order = Vec::new();
    loop {
        let view = View::new(problem, &settlement.collapsed);
        let mut round = Round { problem, form, view: &view, settled: &settlement, found: Vec::new() };
        // A copy that one conflict keeps may settle others above it. So operands come first, which lie deepest, then
        // what an output needs by itself, then outputs against one another, one relation at a time, since one copy
        // may serve both; and every copy removes a wait, so the order of the writes comes last.
        let stages =
            [Round::operands, Round::user_needs, Round::mutation_needs, Round::shared_nodes, Round::shared_storage];
        for stage in stages {
            if round.found.is_empty() {
                stage(&mut round);
            }
        }
        if round.found.is_empty() {
            (order, round.found) = round.write_order();
        }
        round.found.retain(|c| !is_seeded(Fault::Ignore(c.reason.code)));
        let conflicts: Vec<_> = round.found.into_iter().map(|c| (c.remedy(problem, &view), c)).collect();
        let mut changed = false;
        for (copies, conflict) in conflicts {
            changed |= settlement.resolve(conflict.slot, &copies, &conflict.reason);
        }
        if !changed {
            settlement.order = order;
            return settlement;
        }
    }
}

/// Where a conflict is: at an output, or at an operand of a control-flow operator.
#[derive(Clone, Copy)]
enum Slot {
    Output(usize),
    Operand(ValueId),
}

/// Something that must not be, and why.
struct Conflict {
    slot: Slot,
    reason: KeepReason,
    /// Whether no copy of the program helps: what is shared past all of them stays shared, and no copy below a node
    /// makes it another node.
    needs_new: bool,
}

impl Conflict {
    /// The copies that would resolve the conflict; none where only a new one would.
    fn remedy(&self, problem: &Problem, view: &View<'_>) -> Vec<ValueId> {
        let value = match self.slot {
            Slot::Output(i) => output_value(problem, i),
            Slot::Operand(value) => Some(value),
        };
        value.filter(|_| !self.needs_new).map(|v| view.frontier(v)).unwrap_or_default()
    }
}

impl Settlement {
    /// Keeps the frontier, or has a copy inserted; says whether that is news.
    fn resolve(&mut self, slot: Slot, frontier: &[ValueId], reason: &KeepReason) -> bool {
        for &copy in frontier {
            self.collapsed[copy.index()] = false;
            self.kept.entry(copy).or_insert_with(|| reason.clone());
        }
        match slot {
            _ if !frontier.is_empty() => true,
            Slot::Output(i) if !self.inserted.contains_key(&i) => {
                self.inserted.insert(i, reason.clone());
                true
            }
            _ => false,
        }
    }
}

/// The tensor of output `i`.
#[must_use]
pub fn output_value(problem: &Problem, i: usize) -> Option<ValueId> {
    match problem.outputs[i] {
        Output::Mutation { value, .. } | Output::User(value) => Some(value),
        Output::Other => None,
    }
}

/// In a graph that writes in place, a copy may hold a value that its source no longer has. We know no order of writes
/// and reads here, so every copy stays whose storage, or whose source's storage, is written anywhere (semantics 4.7).
fn keep_written(problem: &Problem, settlement: &mut Settlement) {
    if problem.written.is_empty() && !problem.opaque_writes {
        return;
    }
    let view = View::new(problem, &settlement.collapsed);
    let mut is_written = vec![problem.opaque_writes; problem.values.len()];
    for root in problem.written.iter().flat_map(|&w| view.storage(w)) {
        is_written[root.index()] = true;
    }
    for copy in problem.copies().filter(|c| settlement.collapsed[c.index()]) {
        if let Some(&root) = view.storage(copy).iter().find(|r| is_written[r.index()])
            && !is_seeded(Fault::Ignore(Code::WrittenInPlace))
        {
            settlement.kept.insert(copy, KeepReason::blaming(Code::WrittenInPlace, root));
        }
    }
    for &copy in settlement.kept.keys() {
        settlement.collapsed[copy.index()] = false;
    }
}

/// One search for conflicts, under the assumption that `view` holds.
struct Round<'a> {
    problem: &'a Problem,
    form: Form,
    view: &'a View<'a>,
    settled: &'a Settlement,
    found: Vec<Conflict>,
}

impl Round<'_> {
    fn conflict(&mut self, output: usize, code: Code, blame: ValueId, needs_new: bool) {
        let reason = KeepReason::blaming(code, blame);
        self.found.push(Conflict { slot: Slot::Output(output), reason, needs_new });
    }

    /// The mutation outputs that still have no copy inserted: output, target, value.
    fn mutations(&self) -> Vec<(usize, ValueId, ValueId)> {
        let outputs = self.problem.outputs.iter().enumerate();
        outputs
            .filter(|(i, _)| !self.settled.inserted.contains_key(i))
            .filter_map(|(i, o)| match o {
                Output::Mutation { target, value, .. } => Some((i, *target, *value)),
                _ => None,
            })
            .collect()
    }

    fn users(&self) -> Vec<(usize, ValueId)> {
        let outputs = self.problem.outputs.iter().enumerate();
        outputs
            .filter(|(i, _)| !self.settled.inserted.contains_key(i))
            .filter_map(|(i, o)| match o {
                Output::User(value) => Some((i, *value)),
                _ => None,
            })
            .collect()
    }

    /// Rule 4.6 for the operands of control-flow operators.
    fn operands(&mut self) {
        for group in &self.problem.operand_groups {
            let slots: Vec<_> = group.iter().map(|&v| (Slot::Operand(v), v)).collect();
            self.disjoint(&slots, Code::SubgraphBoundary);
        }
    }

    /// Rules 4.3 and 4.4: a mutation's value against the placeholders.
    fn mutation_needs(&mut self) {
        let last_written = self.last_pinned_write();
        for (i, target, value) in self.mutations() {
            let base = self.view.base(value);
            if let Some((code, blame)) = self.portable_need(target, base) {
                let needs_new = code == Code::Overlap && self.view.is_bare(value, target);
                self.conflict(i, code, blame, needs_new);
            } else if let Some((last, other)) = last_written.filter(|_| base == target && self.is_pinned(i))
                && i < last
            {
                self.conflict(i, Code::OutputOrder, other, false);
            }
        }
    }

    /// The last output that is written among those whose position can be observed, and its target. `ExecuTorch` puts
    /// what it writes before what it finds in place, so an identity before it would change places with it.
    fn last_pinned_write(&self) -> Option<(usize, ValueId)> {
        let outputs = self.problem.outputs.iter().enumerate().rev();
        let mut written = outputs.filter_map(|(i, o)| match *o {
            Output::Mutation { target, value, .. } if self.is_pinned(i) => {
                let is_written = self.view.base(value) != target || self.settled.inserted.contains_key(&i);
                is_written.then_some((i, target))
            }
            _ => None,
        });
        written.next()
    }

    fn is_identity(&self, output: &Output) -> bool {
        matches!(output, Output::Mutation { target, value, .. } if self.view.base(*value) == *target)
    }

    /// Whether the position of a mutation output matters in this form.
    fn is_pinned(&self, output: usize) -> bool {
        self.form == Form::Portable && matches!(self.problem.outputs[output], Output::Mutation { pinned: true, .. })
    }

    /// For each value, whether it is a target that changes.
    fn mutated(&self) -> Vec<bool> {
        let mut is_mutated = vec![false; self.problem.values.len()];
        for (i, output) in self.problem.outputs.iter().enumerate() {
            if let Output::Mutation { target, value, .. } = *output {
                let has_copy = self.settled.inserted.contains_key(&i);
                is_mutated[target.index()] = self.view.base(value) != target || has_copy;
            }
        }
        is_mutated
    }

    /// Rules 4.5 and 4.6: a user output against the placeholders.
    fn user_needs(&mut self) {
        let is_mutated = self.mutated();
        let code = if self.problem.is_body { Code::SubgraphBoundary } else { Code::UserOutput };
        for (i, value) in self.users() {
            let of_inputs = |(root, _): &(ValueId, ValueId)| *self.problem.def(*root) == Def::Placeholder;
            let origins: Vec<_> = self.view.origins(value).into_iter().filter(of_inputs).collect();
            let is_stale = |root: ValueId| is_mutated[root.index()] && !is_seeded(Fault::OnlyNew);
            // What only a new copy resolves comes first, since that resolves the rest.
            let bare = origins.iter().find(|&&(root, origin)| origin == root && is_stale(root));
            let new = |&&(root, origin): &&_| is_stale(root) || (origin != root && !is_seeded(Fault::OnlyMutated));
            if let Some(&(root, _)) = bare.or_else(|| origins.iter().find(new)) {
                self.conflict(i, code, root, bare.is_some());
            }
        }
    }

    /// What a stock write-back cannot do with `base` as the new value of `target`, whatever the other outputs are.
    fn portable_need(&self, target: ValueId, base: ValueId) -> Option<(Code, ValueId)> {
        if self.form == Form::Minimal || base == target {
            None
        } else if *self.problem.def(base) == Def::Placeholder && self.problem.may_be_of_one_kind(base, target) {
            Some((Code::PlaceholderValue, base))
        } else if self.view.storage(base).contains(&target) {
            Some((Code::Overlap, target))
        } else {
            None
        }
    }

    /// Rules 4.1 and 4.8: a mutation's value against the nodes of the other outputs.
    fn shared_nodes(&mut self) {
        let n = self.problem.values.len();
        let mut user_at: Vec<Option<(usize, ValueId)>> = vec![None; n];
        let mut is_returned = vec![false; n];
        for (i, value) in self.users() {
            is_returned[value.index()] = true;
            let slot = &mut user_at[self.view.base(value).index()];
            // The user output without a choice speaks for the node.
            if slot.is_none_or(|(_, v)| self.view.base(v) != v) {
                *slot = Some((i, value));
            }
        }
        let mut mutation_at: Vec<Option<(ValueId, ValueId)>> = vec![None; n];
        let mut claims = self.mutations();
        let saved = self.saved();
        // Without a choice first; then those that no ring needs to save, since one copy may serve both ends; then
        // those that are no user outputs, for the same reason; then the one below, because a copy that stays below
        // another would be its node again. Outputs break ties, never the order of the nodes.
        claims.sort_by_key(|&(i, _, v)| {
            let depth = self.view.depth(v);
            (depth != 0, saved.contains(&i), is_returned[v.index()], depth)
        });
        for (i, target, value) in claims {
            let base = self.view.base(value);
            // The caller gets the target for such an output, which is right where both came as one node of its type.
            let user = user_at[base.index()]
                .filter(|&(_, v)| base != target && (v != value || !self.is_of_type_of(base, target)));
            if let (Form::Portable, Some((user, original))) = (self.form, user) {
                // Either may keep its copy; the mutation keeps it unless only the user output has one.
                if base != value || original == value {
                    self.conflict(i, Code::ValueAndOutput, original, base == value);
                    continue;
                }
                self.conflict(user, Code::ValueAndOutput, base, false);
            }
            match mutation_at[base.index()] {
                // Two that came as one node read one copy, whichever stays.
                Some((owner, as_node)) => self.conflict(i, Code::SharedValue, owner, value == base || value == as_node),
                None => mutation_at[base.index()] = Some((target, value)),
            }
        }
    }

    fn is_of_type_of(&self, value: ValueId, target: ValueId) -> bool {
        compare(self.problem, target, value, target, &mut Vec::new()).is_ok() || is_seeded(Fault::TypeOfOutput)
    }

    /// The outputs that would be saved to break rings, if nothing else were in the way.
    fn saved(&self) -> Vec<usize> {
        let outputs = mutation_outputs(self.problem);
        let moves = moves(self.problem, self.view, &self.settled.inserted, self.form);
        let saves = sequence(&moves).into_iter().filter_map(|step| match step {
            Step::Save(m) => Some(outputs[m]),
            Step::Write(_) => None,
        });
        saves.collect()
    }

    /// Rules 4.5 and 4.6: user outputs against one another.
    fn shared_storage(&mut self) {
        let code = if self.problem.is_body { Code::SubgraphBoundary } else { Code::OutputAlias };
        let slots: Vec<_> = self.users().into_iter().map(|(i, v)| (Slot::Output(i), v)).collect();
        self.disjoint(&slots, code);
    }

    /// No two values of the group may share storage unless they did before.
    fn disjoint(&mut self, slots: &[(Slot, ValueId)], code: Code) {
        let (fixed, free): (Vec<_>, Vec<_>) =
            slots.iter().copied().partition(|&(_, v)| self.view.frontier(v).is_empty());
        // For each storage, who shares it, and what stood in its place before: the first, and the first with another
        // origin. Whoever comes later differs from one of them, or from none.
        let mut owners: BTreeMap<ValueId, Vec<(ValueId, ValueId)>> = BTreeMap::new();
        for (slot, value) in fixed.into_iter().chain(free) {
            let origins = self.view.origins(value);
            let newly = |&(root, origin): &(ValueId, ValueId)| {
                let mut known = owners.get(&root).into_iter().flatten();
                known.find(|&&(before, _)| before != origin).map(|&(_, other)| other)
            };
            if let Some(other) = origins.iter().find_map(newly) {
                self.found.push(Conflict { slot, reason: KeepReason::blaming(code, other), needs_new: false });
                continue;
            }
            for (root, origin) in origins {
                let known = owners.entry(root).or_default();
                if known.first().is_none_or(|&(before, _)| known.len() < 2 && before != origin) {
                    known.push((origin, value));
                }
            }
        }
    }

    /// Rule 4.2: the order of the mutation outputs, and those whose value must be a snapshot for any order to do.
    /// The minimal form leaves order and temporaries to the write-back.
    fn write_order(&self) -> (Vec<usize>, Vec<Conflict>) {
        let outputs = mutation_outputs(self.problem);
        if self.form == Form::Minimal {
            return (outputs, Vec::new());
        }
        let moves = moves(self.problem, self.view, &self.settled.inserted, self.form);
        let mut order = Vec::with_capacity(outputs.len());
        let mut snapshots = Vec::new();
        for step in sequence(&moves) {
            match step {
                Step::Write(m) => order.push(outputs[m]),
                Step::Save(m) => {
                    // Something that is read, best what no copy stands before. Its own target is rule 4.4's, and was
                    // dealt with.
                    let value = output_value(self.problem, outputs[m]);
                    let bare = |r: &&ValueId| value.is_some_and(|v| self.view.is_bare(v, **r));
                    let bare = moves[m].reads.iter().find(bare);
                    let blame = bare.or(moves[m].reads.first()).copied();
                    let reason = KeepReason { code: Code::Snapshot, blame, fact: String::new() };
                    let needs_new = bare.is_some();
                    snapshots.push(Conflict { slot: Slot::Output(outputs[m]), reason, needs_new });
                }
            }
        }
        // What is in place already comes last, where `ExecuTorch` puts it anyway.
        let is_in_place: Vec<bool> = self.problem.outputs.iter().map(|o| self.is_identity(o)).collect();
        if !is_seeded(Fault::PositionsFree) {
            order.sort_by_key(|&o| is_in_place[o] && !self.settled.inserted.contains_key(&o));
        }
        (order, snapshots)
    }
}

/// The positions of the mutation outputs.
#[must_use]
pub fn mutation_outputs(problem: &Problem) -> Vec<usize> {
    let is_mutation = |i: &usize| matches!(problem.outputs[*i], Output::Mutation { .. });
    (0..problem.outputs.len()).filter(is_mutation).collect()
}

/// The mutation outputs as moves, in output order. An output with an inserted copy reads no target.
#[must_use]
pub fn moves(problem: &Problem, view: &View<'_>, inserted: &BTreeMap<usize, KeepReason>, form: Form) -> Vec<Move> {
    let n = problem.values.len();
    let (mut is_target, mut sharers) = (vec![false; n], vec![0; n]);
    for output in &problem.outputs {
        if let Output::Mutation { target, value, .. } = output {
            is_target[target.index()] = true;
            sharers[view.base(*value).index()] += 1;
        }
    }
    let mut moves = Vec::new();
    for (i, output) in problem.outputs.iter().enumerate() {
        let Output::Mutation { target, value, pinned } = *output else { continue };
        let base = view.base(value);
        let is_new = inserted.contains_key(&i);
        let reads = if is_new || is_seeded(Fault::NoReads) {
            Vec::new()
        } else {
            view.storage(base).iter().copied().filter(|r| is_target[r.index()]).collect()
        };
        // Best is to keep a copy that is needed anyway, since two outputs may not share a node; to keep any copy is
        // better than to make one.
        let cost = match (view.frontier(value).is_empty(), sharers[base.index()]) {
            (false, 2..) => 0,
            (false, _) => 1,
            (true, _) => 2,
        };
        // The order in which our own write-back writes cannot be observed, whatever the order of the outputs.
        let pinned = pinned && form == Form::Portable && !is_seeded(Fault::NoPins);
        let is_input = is_seeded(Fault::AnyIdentity) && *problem.def(base) == Def::Placeholder;
        let identity = (base == target || is_input) && !is_new;
        moves.push(Move { target, reads, identity, pinned, cost });
    }
    moves
}
