//! mutcanon's core: decides which copies a mutating program can do without.
//!
//! Terms: a *mutation output* assigns a *value* to a *target* when the graph is left; all assignments happen at once.
//! A *copy* is an `aten.copy` node. It is *redundant* when it changes nothing by type, *collapsed* when its readers
//! read its source instead, *kept* with a [`reasons::KeepReason`] otherwise. A *root* is a value whose storage another
//! one may share. `semantics.md` is the contract, and comments cite its sections.
//!
//! The way through the crate:
//! - [`problem`]: what a front end says about a program; [`layout`]: what tensors look like.
//! - [`redundancy`]: copies that are redundant by type. [`storage`], [`hazards`]: those that are needed all the same.
//! - [`parallel_copy`]: the order of the write-backs. [`plan`]: all of it together.
//! - [`flow`], [`reinplace`]: which results may be written in place, and when the others are written back.
//! - [`findings`]: what stock consumers get wrong in a program as it is.
//! - [`pt2`]: programs in `.pt2` archives, without torch.
//! - [`text`], [`flow_text`]: problems and plans as text, for tests and bug reports.

pub mod check;
pub mod error;
pub mod faults;
pub mod findings;
pub mod flow;
pub mod flow_text;
pub mod hazards;
pub mod ids;
pub mod layout;
pub mod parallel_copy;
pub mod plan;
pub mod problem;
pub mod pt2;
pub mod reasons;
pub mod redundancy;
pub mod reinplace;
pub mod storage;
pub mod text;

#[cfg(feature = "python")]
mod python;

pub use error::Error;
pub use plan::{Form, Plan, plan};
pub use problem::Problem;
