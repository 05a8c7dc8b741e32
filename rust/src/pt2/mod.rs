//! Programs in `.pt2` archives, without torch.

pub mod alias_table;
pub mod expr;
pub mod fault;
pub mod graph;
pub mod sniff;
pub mod zip;
