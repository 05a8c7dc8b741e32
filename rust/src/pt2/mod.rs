//! Programs in `.pt2` archives, without torch.

pub mod fault;
pub mod zip;
