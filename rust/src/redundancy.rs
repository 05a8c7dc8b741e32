//! Which copies change nothing (semantics 3).
//!
//! `c = copy(d, s)` is a cast, an expansion and a relayout of `s` to the type of `c`. When the types of `c` and `s` are
//! *proved* equal it is none of these, and every reader of `c` may read `s`. The destination does not matter.
//!
//! Nothing here looks at where a value goes: a copy that is redundant by type may still be needed for its storage,
//! which is [`crate::hazards`]' concern.

use crate::faults::{Fault, is_seeded};
use crate::ids::ValueId;
use crate::layout::{Dim, Format, Layout, ordered};
use crate::problem::{Def, Problem};
use crate::reasons::{Code, KeepReason};

/// A pair of dimensions whose equality would make another copy redundant, if only it were proved.
pub type Query = (Dim, Dim);

/// Whether the copy `value` is redundant by type; otherwise why not. Equalities that would help go to `queries`.
pub fn judge(problem: &Problem, value: ValueId, queries: &mut Vec<Query>) -> Result<(), KeepReason> {
    let Def::Copy { destination, source, non_blocking } = *problem.def(value) else {
        unreachable!("only copies are judged");
    };
    if non_blocking {
        return Err(KeepReason::new(Code::NonBlocking, "non_blocking is set"));
    }
    let compared = if is_seeded(Fault::DestinationCompared) { destination } else { source };
    compare(problem, value, compared, destination, queries)
}

/// Whether `value` has the type of `source`; `destination` is where a quantizer may be inherited from.
pub fn compare(
    problem: &Problem,
    value: ValueId,
    source: ValueId,
    destination: ValueId,
    queries: &mut Vec<Query>,
) -> Result<(), KeepReason> {
    let (c, s) = (problem.layout(value), problem.layout(source));
    if c.format == Format::Unknown || s.format == Format::Unknown {
        let blame = if s.format == Format::Unknown { source } else { value };
        return Err(KeepReason::blaming(Code::NoMetadata, blame));
    }
    // Many links of a chain share one interned layout; identity is the cheapest proof there is.
    let same = problem.values[value.index()].layout == problem.values[source.index()].layout;
    equal_kind(c, s)?;
    equal_quantizers(problem, c, s, destination, source)?;
    if same {
        return Ok(());
    }
    equal_sizes(problem, c, s, queries)?;
    equal_strides(problem, c, s, queries)
}

/// Rules 3.1 and 3.5: element type, device, memory format, lazy bits.
fn equal_kind(c: &Layout, s: &Layout) -> Result<(), KeepReason> {
    if let Format::Other(what) = &c.format {
        return Err(KeepReason::new(Code::TensorLayout, what.clone()));
    }
    if let Format::Other(what) = &s.format {
        return Err(KeepReason::new(Code::TensorLayout, what.clone()));
    }
    if c.dtype != s.dtype {
        return Err(KeepReason::new(Code::Cast, format!("{} to {}", s.dtype, c.dtype)));
    }
    if c.device != s.device {
        return Err(KeepReason::new(Code::Device, format!("{} to {}", s.device, c.device)));
    }
    if (c.conj, c.neg) != (s.conj, s.neg) {
        return Err(KeepReason::new(Code::LazyBits, "only one side is lazily conjugated or negated"));
    }
    // The bytes of a lazily conjugated tensor are not its values, and few readers look: when in doubt, keep.
    if c.conj || c.neg {
        return Err(KeepReason::new(Code::LazyBits, "both sides are lazily conjugated or negated"));
    }
    Ok(())
}

/// Rule 3.4. The quantizer of a copy is its destination's, so `s` may also prove it by descent from `d`.
fn equal_quantizers(
    problem: &Problem,
    c: &Layout,
    s: &Layout,
    destination: ValueId,
    source: ValueId,
) -> Result<(), KeepReason> {
    match (&c.quantizer, &s.quantizer) {
        (None, None) => return Ok(()),
        (Some(a), Some(b)) if a == b && !a.is_empty() => return Ok(()),
        _ => {}
    }
    let mut ancestor = problem.values[source.index()].keeps_representation_of;
    while let Some(value) = ancestor {
        if value == destination || is_seeded(Fault::AnyAncestor) {
            return Ok(());
        }
        ancestor = problem.values[value.index()].keeps_representation_of;
    }
    Err(KeepReason::new(Code::Quantizer, "neither equal nor inherited from the destination"))
}

/// Rule 3.2, and 3.6 for symbolic sizes.
fn equal_sizes(problem: &Problem, c: &Layout, s: &Layout, queries: &mut Vec<Query>) -> Result<(), KeepReason> {
    if c.sizes.len() != s.sizes.len() {
        return Err(KeepReason::new(Code::Broadcast, format!("{} dimensions to {}", s.sizes.len(), c.sizes.len())));
    }
    let mut open = None;
    for (i, (&a, &b)) in s.sizes.iter().zip(&c.sizes).enumerate() {
        match problem.equalities.decide(a, b) {
            Some(true) => {}
            Some(false) => {
                return Err(KeepReason::new(
                    Code::Broadcast,
                    format!("dimension {i}: {} to {}", show(problem, a), show(problem, b)),
                ));
            }
            None => {
                queries.push(ordered(a, b));
                open = open.or(Some((i, a, b)));
            }
        }
    }
    match open {
        None => Ok(()),
        Some((i, a, b)) => Err(unproved(problem, Code::UnprovedSize, i, a, b)),
    }
}

/// Rule 3.3, and 3.6 for symbolic strides. Sizes are known to be equal here.
fn equal_strides(problem: &Problem, c: &Layout, s: &Layout, queries: &mut Vec<Query>) -> Result<(), KeepReason> {
    if c.is_empty() || s.is_empty() {
        return Ok(());
    }
    let mut open = None;
    for i in 0..c.strides.len() {
        let (a, b) = (s.strides[i], c.strides[i]);
        let stride = problem.equalities.decide(a, b);
        if stride == Some(true) {
            continue;
        }
        // The sizes are equal, so either may show that the dimension has a single element.
        let one = Dim::Int(1);
        let sizes = [c.sizes[i], s.sizes[i]];
        let all = if is_seeded(Fault::AnySizeOne) { &c.sizes } else { &sizes[..] };
        if all.iter().any(|&n| problem.equalities.decide(n, one) == Some(true)) {
            continue;
        }
        let symbolic = sizes.iter().find(|n| matches!(n, Dim::Symbol(_)));
        if sizes.iter().all(|n| matches!(n, Dim::Symbol(_))) {
            queries.extend(symbolic.map(|&n| ordered(n, one)));
        }
        if stride == Some(false) {
            return Err(KeepReason::new(
                Code::Strides,
                format!("dimension {i}: {} to {}", show(problem, a), show(problem, b)),
            ));
        }
        queries.push(ordered(a, b));
        open = open.or(Some((i, a, b)));
    }
    match open {
        None => Ok(()),
        Some((i, a, b)) => Err(unproved(problem, Code::UnprovedStride, i, a, b)),
    }
}

fn unproved(problem: &Problem, code: Code, i: usize, a: Dim, b: Dim) -> KeepReason {
    KeepReason::new(code, format!("dimension {i}: {} == {}", show(problem, a), show(problem, b)))
}

/// A dimension as text.
#[must_use]
pub fn show(problem: &Problem, dim: Dim) -> String {
    match dim {
        Dim::Int(n) => n.to_string(),
        Dim::Symbol(s) => problem.symbols[s.index()].clone(),
    }
}
