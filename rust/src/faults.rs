//! Faults to be put into the planner one at a time, to see whether anybody notices.
//!
//! A checker that never objects proves nothing, so we break the planner on purpose: each rule of the semantics is
//! ignored in turn, and then orders, targets, storages and proofs are confused. `rust/tests/faults.rs` wants the checker
//! and some other test to notice each. Without the feature `faults`, [`is_seeded`] is never true and costs nothing.

#[cfg(feature = "faults")]
use crate::{
    hazards::mutation_outputs,
    parallel_copy::Step,
    plan::{Decision, Plan},
    problem::{Def, Output, Problem},
};

use crate::reasons::Code;

macro_rules! faults {
    ($($name:ident $doc:literal)*) => {
        /// A fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            /// The rule with this code is ignored.
            Ignore(Code),
            $(#[doc = $doc] $name,)*
        }

        impl Fault {
            /// The faults that do not consist in ignoring a rule.
            pub const CONFUSIONS: &'static [Fault] = &[$(Fault::$name),*];

            /// What goes wrong, for people.
            #[must_use]
            pub fn sentence(self) -> String {
                match self {
                    Fault::Ignore(code) => format!("`{code}` is ignored: {}", code.sentence()),
                    $(Fault::$name => $doc.to_owned(),)*
                }
            }
        }
    };
}

faults! {
    AnyProof "whatever was proved proves every equality"
    OneRowIsNone "a tensor with a dimension of one element counts as empty"
    AnySizeOne "strides do not matter when any dimension has one element"
    AnyAncestor "a quantizer is inherited from whatever value comes first"
    DestinationCompared "a copy is compared with its destination"
    ViewIsNew "a view counts as storage of its own"
    FirstArgument "an operator that may return any argument returns the first one"
    CollapsedIsNew "a collapsed copy counts as storage of its own"
    DestinationRead "readers of a collapsed copy read its destination"
    NoKinds "no two placeholders are of one kind"
    OnlyMutated "a user output may come to share storage with an input that is not mutated"
    OnlyNew "a user output may go on sharing storage with an input that is mutated"
    TypeOfOutput "a user output that is a mutation's value counts as having the target's type"
    PositionsFree "what is in place need not come last"
    NoReads "no value counts as reading a target"
    AnyIdentity "a value that is some placeholder counts as its own target"
    NoPins "pinned outputs may move"
    WriterFirst "a target is written before its reader"
    NoSaves "rings are written without a temporary"
    LateSaves "temporaries are saved after the writes"
    ReversedWrites "the write-back goes backwards"
    LostWrite "the last write is forgotten"
    RotatedOutputs "the mutation outputs are rotated"
    OtherOutput "a new copy goes to another output"
    OldValue "a new copy copies the target instead of its value"
}

#[cfg(feature = "faults")]
mod seeded {
    use std::cell::Cell;

    use super::Fault;

    thread_local! {
        static SEEDED: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Puts a fault into this thread's planner, or takes it out again.
    pub fn seed(fault: Option<Fault>) {
        SEEDED.set(fault);
    }

    /// Whether the fault is in the planner.
    #[must_use]
    pub fn is_seeded(fault: Fault) -> bool {
        SEEDED.get() == Some(fault)
    }
}

#[cfg(not(feature = "faults"))]
mod seeded {
    /// Whether the fault is in the planner: never.
    #[must_use]
    pub const fn is_seeded(_: super::Fault) -> bool {
        false
    }
}

pub use seeded::*;

/// A plan that was right until now, with the fault in it.
#[cfg(feature = "faults")]
#[must_use]
pub fn confused(problem: &Problem, mut plan: Plan) -> Plan {
    let mutations = mutation_outputs(problem);
    if is_seeded(Fault::DestinationRead) {
        for (copy, decision) in &mut plan.decisions {
            if let (Decision::Collapse(base), Def::Copy { destination, .. }) = (decision, problem.def(*copy)) {
                *base = *destination;
            }
        }
    }
    if is_seeded(Fault::NoSaves) {
        plan.write_backs.retain(|step| matches!(step, Step::Write(_)));
    }
    if is_seeded(Fault::LateSaves) {
        plan.write_backs.sort_by_key(|step| matches!(step, Step::Save(_)));
    }
    if is_seeded(Fault::ReversedWrites) {
        plan.write_backs.reverse();
    }
    if is_seeded(Fault::LostWrite) {
        plan.write_backs.pop();
    }
    if is_seeded(Fault::RotatedOutputs) && mutations.len() > 1 {
        let mut order = plan.order.take().unwrap_or(mutations.clone());
        order.rotate_left(1);
        plan.order = Some(order);
    }
    for insert in &mut plan.inserts {
        if is_seeded(Fault::OtherOutput) {
            insert.output = (insert.output + 1) % problem.outputs.len();
        }
        if let Output::Mutation { target, .. } = problem.outputs[insert.output]
            && is_seeded(Fault::OldValue)
        {
            insert.value = target;
        }
    }
    plan
}
