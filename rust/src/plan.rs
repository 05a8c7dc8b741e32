//! The decision: what becomes of each copy, and in which order the mutations are written back.

use std::collections::BTreeMap;

use crate::faults::{Fault, is_seeded};
use crate::hazards::{moves, mutation_outputs, output_value, settle};
use crate::ids::ValueId;
use crate::parallel_copy::{Step, sequence};
use crate::problem::Problem;
use crate::reasons::KeepReason;
use crate::redundancy::{Query, judge};
use crate::storage::View;

/// What the consumer of the result promises (semantics 4, end).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As few copies as parallel assignment allows; needs a write-back that follows [`Plan::write_backs`].
    Minimal,
    /// Also right under a write-back in signature order, as stock torch and `ExecuTorch` do it.
    Portable,
}

impl Form {
    /// The form's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Form::Minimal => "minimal",
            Form::Portable => "portable",
        }
    }
}

/// What becomes of one copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Every use reads this value instead.
    Collapse(ValueId),
    /// The copy stays.
    Keep(KeepReason),
}

/// A new copy of an output's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insert {
    /// The output.
    pub output: usize,
    /// What is copied.
    pub value: ValueId,
    /// Why.
    pub reason: KeepReason,
}

/// The result of [`plan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The form that was asked for.
    pub form: Form,
    /// Every copy of the problem, in its order.
    pub decisions: Vec<(ValueId, Decision)>,
    /// Copies to be added.
    pub inserts: Vec<Insert>,
    /// The mutation outputs in their new order, or `None` when it stays.
    pub order: Option<Vec<usize>>,
    /// The write-backs; a step's number is an output.
    pub write_backs: Vec<Step>,
    /// Pairs `(reader, writer)` of outputs: the first one's value may share storage with the second one's target.
    pub hazards: Vec<(usize, usize)>,
    /// Equalities whose proof could make more copies redundant; sorted, without repetition.
    pub queries: Vec<Query>,
}

impl Plan {
    /// Whether applying the plan would leave the program as it is.
    #[must_use]
    pub fn changes_nothing(&self) -> bool {
        self.inserts.is_empty()
            && self.order.is_none()
            && self.decisions.iter().all(|(_, d)| matches!(d, Decision::Keep(_)))
    }
}

/// Decides. The problem must have been validated.
#[must_use]
pub fn plan(problem: &Problem, form: Form) -> Plan {
    let mut queries = Vec::new();
    let mut redundant = vec![false; problem.values.len()];
    let mut kept: BTreeMap<ValueId, KeepReason> = BTreeMap::new();
    for copy in problem.copies() {
        match judge(problem, copy, &mut queries) {
            Ok(()) => redundant[copy.index()] = true,
            Err(reason) if is_seeded(Fault::Ignore(reason.code)) => redundant[copy.index()] = true,
            Err(reason) => {
                kept.insert(copy, reason);
            }
        }
    }
    queries.sort_unstable();
    queries.dedup();

    let mut settlement = settle(problem, redundant, form);
    kept.append(&mut settlement.kept);
    let view = View::new(problem, &settlement.collapsed);
    let decisions = problem
        .copies()
        .map(|copy| {
            let decision = match kept.remove(&copy) {
                Some(reason) => Decision::Keep(reason),
                None => Decision::Collapse(view.base(copy)),
            };
            (copy, decision)
        })
        .collect();
    let moves = moves(problem, &view, &settlement.inserted, form);
    let outputs = mutation_outputs(problem);
    let write_backs = sequence(&moves)
        .into_iter()
        .map(|step| match step {
            Step::Save(m) => Step::Save(outputs[m]),
            Step::Write(m) => Step::Write(outputs[m]),
        })
        .collect();
    let mut output_of = vec![None; problem.values.len()];
    for (m, mv) in moves.iter().enumerate() {
        output_of[mv.target.index()] = Some(outputs[m]);
    }
    let hazards = moves
        .iter()
        .enumerate()
        .filter(|(_, mv)| !mv.identity)
        .flat_map(|(m, mv)| mv.reads.iter().map(move |r| (m, *r)))
        .filter_map(|(m, read)| output_of[read.index()].map(|writer| (outputs[m], writer)))
        .collect();
    let inserts = settlement
        .inserted
        .into_iter()
        .filter_map(|(output, reason)| {
            let value = view.base(output_value(problem, output)?);
            Some(Insert { output, value, reason })
        })
        .collect();
    let order = (settlement.order != outputs).then_some(settlement.order);
    let plan = Plan { form, decisions, inserts, order, write_backs, hazards, queries };
    #[cfg(feature = "faults")]
    let plan = crate::faults::confused(problem, plan);
    plan
}
