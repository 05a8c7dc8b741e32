//! The types of an archive's tensors, as the planner compares them.
//!
//! Sizes are interned by their normal form (see [`super::expr`]), so sizes that can be proved equal *are* equal here,
//! and the planner's queries are those that remain open.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::error::Error;
use crate::ids::{LayoutId, SymbolId};
use crate::layout::{Dim, Format, Layout};
use crate::pt2::expr::Polynomial;
use crate::pt2::fault::Fault;
use crate::pt2::graph::{Pairs, RangeConstraint, SymInt, TensorMeta};

/// Element types by the schema's enumerators: name and size in bytes.
const DTYPES: &[(u64, &str, i128)] = &[
    (1, "uint8", 1),
    (2, "int8", 1),
    (3, "int16", 2),
    (4, "int32", 4),
    (5, "int64", 8),
    (6, "float16", 2),
    (7, "float32", 4),
    (8, "float64", 8),
    (9, "complex32", 4),
    (10, "complex64", 8),
    (11, "complex128", 16),
    (12, "bool", 1),
    (13, "bfloat16", 2),
    (28, "uint16", 2),
    (29, "float8_e4m3fn", 1),
    (30, "float8_e5m2", 1),
    (31, "float8_e4m3fnuz", 1),
    (32, "float8_e5m2fnuz", 1),
    (33, "float8_e8m0fnu", 1),
    (34, "uint32", 4),
    (35, "uint64", 8),
];

/// Memory formats by the schema's enumerators.
const FORMATS: &[&str] =
    &["unknown", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn", "strided"];

/// What is known about the symbols of a program: the values of those that can have a single one.
pub struct Symbols<'a> {
    values: HashMap<&'a str, i64>,
}

impl<'a> Symbols<'a> {
    /// Reads the program's bounds of its symbols.
    pub fn new(ranges: &Pairs<'a>) -> Result<Self, Error> {
        let mut values = HashMap::new();
        for (name, range) in &ranges.0 {
            if let Some(value) = parse::<RangeConstraint<'_>>(range, name)?.only_value() {
                values.insert(*name, value);
            }
        }
        Ok(Symbols { values })
    }

    fn polynomial(&self, size: &SymInt<'_>) -> Polynomial {
        match size {
            SymInt::AsInt(n) => Polynomial::integer((*n).into()),
            SymInt::AsExpr(expr) => Polynomial::parse(&expr.expr_str, &self.values),
        }
    }

    /// The size in bytes of a tensor with this metadata.
    pub fn bytes(&self, meta: Option<&'a RawValue>, name: &str) -> Result<Option<Polynomial>, Error> {
        let Some(meta) = meta else { return Ok(None) };
        let meta = parse::<TensorMeta<'_>>(meta, name)?;
        let Some((.., size)) = DTYPES.iter().find(|(number, ..)| *number == meta.dtype) else { return Ok(None) };
        let mut factors = meta.sizes.iter().map(|s| self.polynomial(s));
        Ok(factors.try_fold(Polynomial::integer(*size), |product, factor| product.times(&factor)))
    }
}

/// Interned layouts and symbolic sizes of one graph.
pub struct Layouts<'s, 'a> {
    /// The distinct layouts; the first is that of a value of which nothing is known.
    pub table: Vec<Layout>,
    /// The distinct symbolic expressions, as text.
    pub expressions: Vec<String>,
    symbols: &'s Symbols<'a>,
    numbers: HashMap<Layout, LayoutId>,
    expression_numbers: HashMap<String, SymbolId>,
}

impl<'s, 'a> Layouts<'s, 'a> {
    /// No layouts yet.
    #[must_use]
    pub fn new(symbols: &'s Symbols<'a>) -> Self {
        let unknown = Layout::unknown();
        Layouts {
            table: vec![unknown.clone()],
            expressions: Vec::new(),
            symbols,
            numbers: HashMap::from([(unknown, LayoutId(0))]),
            expression_numbers: HashMap::new(),
        }
    }

    /// The layout of a value with this metadata. `lazy` says whether it may be conjugated or negated lazily, which an
    /// archive does not tell of a tensor.
    pub fn number(&mut self, meta: Option<&'a RawValue>, name: &str, lazy: bool) -> Result<LayoutId, Error> {
        let Some(meta) = meta else { return Ok(LayoutId(0)) };
        let meta = parse::<TensorMeta<'_>>(meta, name)?;
        let mut layout = self.describe(&meta);
        layout.conj = lazy;
        if let Some(&number) = self.numbers.get(&layout) {
            return Ok(number);
        }
        let number = LayoutId::new(self.table.len());
        self.table.push(layout.clone());
        self.numbers.insert(layout, number);
        Ok(number)
    }

    fn describe(&mut self, meta: &TensorMeta<'_>) -> Layout {
        let format = usize::try_from(meta.layout).ok().and_then(|i| FORMATS.get(i)).copied().unwrap_or("unknown");
        let kind = &meta.device.kind;
        let mut layout = Layout {
            device: meta.device.index.map_or_else(|| kind.to_string(), |i| format!("{kind}:{i}")),
            ..Layout::unknown()
        };
        match (DTYPES.iter().find(|(number, ..)| *number == meta.dtype), format) {
            (Some((_, dtype, _)), "strided") if meta.sizes.len() == meta.strides.len() => {
                layout.dtype = (*dtype).into();
                layout.format = Format::Strided;
                layout.sizes = meta.sizes.iter().map(|s| self.dim(s)).collect();
                layout.strides = meta.strides.iter().map(|s| self.dim(s)).collect();
            }
            (Some(_), other) => layout.format = Format::Other(other.into()),
            // A quantized type, for one, would have more to compare than its name.
            (None, _) => layout.format = Format::Other(format!("element type {}", meta.dtype)),
        }
        layout
    }

    fn dim(&mut self, size: &SymInt<'_>) -> Dim {
        let polynomial = self.symbols.polynomial(size);
        if let Some(n) = polynomial.as_integer().and_then(|n| i64::try_from(n).ok()) {
            return Dim::Int(n);
        }
        let text = polynomial.text();
        let next = SymbolId::new(self.expressions.len());
        let symbol = *self.expression_numbers.entry(text.clone()).or_insert(next);
        if symbol == next {
            self.expressions.push(text);
        }
        Dim::Symbol(symbol)
    }
}

fn parse<'a, T: serde::Deserialize<'a>>(raw: &'a RawValue, name: &str) -> Result<T, Error> {
    serde_json::from_str(raw.get()).map_err(|e| Fault::BadJson.at(format_args!("{name}: {e}")))
}
