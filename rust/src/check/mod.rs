//! The independent checker: does a rewritten program still mean what it meant?
//!
//! A wrong collapse is a silent miscompile of somebody's model, so every result can be checked by a second opinion
//! that shares no code with the planner: not its problem, not its rules, not its extraction. Both programs are read in
//! full ([`program`]; [`text`] is their textual form) and run on symbols ([`machine`], [`heap`]): values become
//! [`terms`] in which every operator is uninterpreted, and one rule relates them: `copy(d, s)` is `s` exactly when the
//! two have equal [`types`]. Then
//!
//! 1. each user output, and what each *target* receives, must be the same term before and afterwards, wherever in the
//!    list of outputs it stands;
//! 2. carried out as the [`consumer`] does it, one write after another, the mutations must come to the same as all
//!    at once;
//! 3. nothing that the caller gets may share storage with an input or with another output if it did not before
//!    ([`storage`]), and the same holds for the bodies of control flow and their operands;
//! 4. everything impure happens in the same order.
//!
//! What would go wrong if the caller passed one tensor as two inputs is a warning: exported programs assume that
//! nobody does. All of it takes linear time.

pub mod archive;
pub mod certificate;
pub mod compare;
pub mod consumer;
pub mod expr;
pub mod facts;
pub mod heap;
pub mod json;
pub mod machine;
pub mod program;
pub mod storage;
pub mod terms;
pub mod text;
pub mod types;

pub use compare::{Objection, Verdict, check};
pub use program::Case;
