//! What a tensor looks like in memory, as far as it is known before the program runs.
//!
//! Two values of equal [`Layout`] are interchangeable for every reader. A size or a stride is a number or a symbolic
//! expression; expressions are known to us only by identity, so two of them are equal when they are the same
//! expression, or when the front end has proved it (see [`Equalities`]).

use std::collections::HashSet;

use crate::faults::{Fault, is_seeded};
use crate::ids::SymbolId;

/// One size or stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// A number.
    Int(i64),
    /// A symbolic expression.
    Symbol(SymbolId),
}

/// Why the memory of a value is, or is not, described by sizes and strides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// A plain dense tensor.
    Strided,
    /// Sparse, nested, jagged or opaque memory, or a tensor subclass, named for messages.
    Other(String),
    /// The value has no metadata, or is no tensor.
    Unknown,
}

/// The type of a tensor value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Name of the element type, as the framework spells it.
    pub dtype: String,
    /// Name of the device, as the framework spells it.
    pub device: String,
    /// Strided, or why not.
    pub format: Format,
    /// The lazy conjugation bit.
    pub conj: bool,
    /// The lazy negation bit.
    pub neg: bool,
    /// For quantized element types: what identifies the quantizer, or `""` where it is unknown.
    pub quantizer: Option<String>,
    /// Sizes, outermost first.
    pub sizes: Vec<Dim>,
    /// Strides in elements; as many as there are sizes.
    pub strides: Vec<Dim>,
}

impl Layout {
    /// The layout of a value of which nothing is known.
    #[must_use]
    pub fn unknown() -> Self {
        Layout {
            dtype: String::new(),
            device: String::new(),
            format: Format::Unknown,
            conj: false,
            neg: false,
            quantizer: None,
            sizes: Vec::new(),
            strides: Vec::new(),
        }
    }

    /// Whether the tensor certainly has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sizes.contains(&Dim::Int(0)) || (is_seeded(Fault::OneRowIsNone) && self.sizes.contains(&Dim::Int(1)))
    }
}

/// Equalities between dimensions that the front end has proved without adding a guard.
#[derive(Clone, Debug, Default)]
pub struct Equalities {
    proved: HashSet<(Dim, Dim)>,
}

impl Equalities {
    /// Records that `a` equals `b`.
    pub fn insert(&mut self, a: Dim, b: Dim) {
        self.proved.insert(ordered(a, b));
    }

    /// Whether anything was proved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.proved.is_empty()
    }

    /// What is known about `a == b`: `Some` when decided, `None` when it would take a proof.
    #[must_use]
    pub fn decide(&self, a: Dim, b: Dim) -> Option<bool> {
        match (a, b) {
            _ if a == b => Some(true),
            (Dim::Int(_), Dim::Int(_)) => Some(false),
            _ if self.proved.contains(&ordered(a, b)) => Some(true),
            _ if is_seeded(Fault::AnyProof) && !self.proved.is_empty() => Some(true),
            _ => None,
        }
    }

    /// The proved pairs, in a fixed order.
    #[must_use]
    pub fn sorted(&self) -> Vec<(Dim, Dim)> {
        let mut pairs: Vec<_> = self.proved.iter().copied().collect();
        pairs.sort_unstable();
        pairs
    }
}

/// The pair with its smaller element first: equality is symmetric.
#[must_use]
pub fn ordered(a: Dim, b: Dim) -> (Dim, Dim) {
    if a <= b { (a, b) } else { (b, a) }
}
