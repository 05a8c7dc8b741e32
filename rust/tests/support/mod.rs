//! What several tests of the core need.

#![allow(missing_docs, dead_code, clippy::unwrap_used)]

pub mod programs;
pub mod random;
pub mod small;
