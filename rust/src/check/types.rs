//! When two types are equal: as numbers, so that a type can be part of a term.
//!
//! Dimensions are equal when they are the same number or expression, or were proved equal; equality is transitive, so
//! proved pairs merge classes. The stride of a dimension with one element means nothing, nor do the strides of a tensor
//! without elements.

use std::collections::HashMap;

use crate::check::program::{Dim, Text, Type};
use crate::error::Error;

/// A class of equal types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Class(pub u32);

impl Class {
    /// The class of what has no type.
    pub const NONE: Class = Class(u32::MAX);
}

/// The class of each type of a case.
#[derive(Debug)]
pub struct Classes {
    of: Vec<Class>,
    is_tensor: Vec<bool>,
}

/// Everything that makes a type, dimensions by class; quantizers are compared by the machine.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Tensor { dtype: Text, device: Text, lazy: (bool, bool), is_quantized: bool, dims: Vec<(Dim, Option<Dim>)> },
    Empty { dtype: Text, device: Text, lazy: (bool, bool), is_quantized: bool, sizes: Vec<Dim> },
    Other(Text),
}

impl Classes {
    /// Finds the class of each type.
    pub fn new(types: &[Type], equal: &[(Dim, Dim)]) -> Result<Self, Error> {
        let mut dims = Equal::default();
        for &(a, b) in equal {
            dims.merge(a, b)?;
        }
        let mut numbers = HashMap::new();
        let mut of = Vec::with_capacity(types.len());
        let mut is_tensor = Vec::new();
        for kind in types {
            let next = Class(u32::try_from(numbers.len()).map_err(|_| Error::InvalidProblem("too many types".into()))?);
            let class = *numbers.entry(key(kind, &mut dims)).or_insert(next);
            if class == next {
                is_tensor.push(matches!(kind, Type::Tensor(_)));
            }
            of.push(class);
        }
        Ok(Classes { of, is_tensor })
    }

    /// Whether the class is one of strided tensors, the only ones that can be proved equal.
    #[must_use]
    pub fn is_tensor(&self, class: Class) -> bool {
        self.is_tensor.get(class.0 as usize).copied().unwrap_or(false)
    }

    /// The class of the type with this number.
    #[must_use]
    pub fn of(&self, number: usize) -> Class {
        self.of[number]
    }
}

fn key(kind: &Type, dims: &mut Equal) -> Key {
    let tensor = match kind {
        Type::Tensor(tensor) => tensor,
        Type::Other(text) => return Key::Other(*text),
    };
    let (dtype, device, lazy) = (tensor.dtype, tensor.device, (tensor.conj, tensor.neg));
    let is_quantized = tensor.quantizer.is_some();
    let sizes: Vec<Dim> = tensor.sizes.iter().map(|&d| dims.find(d)).collect();
    if sizes.contains(&Dim::Number(0)) {
        return Key::Empty { dtype, device, lazy, is_quantized, sizes };
    }
    let stride = |(&size, &stride)| (size, (size != Dim::Number(1)).then(|| dims.find(stride)));
    let dims = sizes.iter().zip(&tensor.strides).map(stride).collect();
    Key::Tensor { dtype, device, lazy, is_quantized, dims }
}

/// Dimensions merged by proved equalities; a number stands for its class where there is one.
#[derive(Default)]
struct Equal {
    parent: HashMap<Dim, Dim>,
}

impl Equal {
    fn find(&mut self, dim: Dim) -> Dim {
        let mut root = dim;
        while let Some(&up) = self.parent.get(&root) {
            root = up;
        }
        let mut at = dim;
        while at != root {
            let up = self.parent.insert(at, root);
            at = up.unwrap_or(root);
        }
        root
    }

    fn merge(&mut self, a: Dim, b: Dim) -> Result<(), Error> {
        match (self.find(a), self.find(b)) {
            (a, b) if a == b => Ok(()),
            (Dim::Number(a), Dim::Number(b)) => {
                Err(Error::InvalidProblem(format!("{a} and {b}: proved equal, which no two numbers are")))
            }
            (a @ Dim::Symbol(_), b) | (b, a @ Dim::Symbol(_)) => {
                self.parent.insert(a, b);
                Ok(())
            }
        }
    }
}
