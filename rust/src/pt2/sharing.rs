//! How much sharing of storage we are ready to look into.
//!
//! An operator that is in no table may alias all of its tensors, and so may whatever reads its result. Where hundreds
//! of values may share storage with hundreds of others there are as many conflicts as pairs, and a small file could ask
//! for any amount of memory. No program is like that; an archive that says so is refused before it is planned.

use std::rc::Rc;

use crate::ids::ValueId;
use crate::problem::{Def, Output, Problem};

/// The pairs of a value and a storage that it may have: 360 outputs that all may be one another.
const MAX_PAIRS: usize = 1 << 18;

/// Values with more possible storages are counted, and not told apart.
const MAX_KNOWN: usize = 64;

/// The storages that a value may have.
#[derive(Clone)]
struct Extent {
    /// At most so many at once, whichever copies collapse: those in a chain of copies never do.
    width: usize,
    /// All of them, where they are few.
    known: Option<Rc<[ValueId]>>,
}

/// Whether the problem's values, and those of its outputs and operands once more, may share storage with few enough
/// others, whichever copies collapse.
#[must_use]
pub fn is_bounded(problem: &Problem) -> bool {
    let mut extents: Vec<Extent> = Vec::with_capacity(problem.values.len());
    let mut pairs = 0usize;
    for (i, value) in problem.values.iter().enumerate() {
        let me = ValueId::new(i);
        let extent = match &value.def {
            // A copy that stays is a storage, and one that collapses has those of its source.
            Def::Copy { source, .. } => {
                let of = &extents[source.index()];
                Extent { width: of.width, known: union(std::slice::from_ref(of).iter(), Some(me)) }
            }
            Def::Alias(of) if of.len() == 1 => extents[of[0].index()].clone(),
            Def::Alias(of) if !of.is_empty() => {
                let parents = || of.iter().map(|v| &extents[v.index()]);
                let known = union(parents(), None);
                let width = parents().fold(0usize, |sum, e| sum.saturating_add(e.width));
                Extent { width: known.as_ref().map_or(width, |k| width.min(k.len())), known }
            }
            _ => Extent { width: 1, known: Some(Rc::from([me])) },
        };
        pairs = pairs.saturating_add(extent.width - 1);
        extents.push(extent);
    }
    let of_outputs = problem.outputs.iter().filter_map(|output| match output {
        Output::Mutation { value, .. } | Output::User(value) => Some(value),
        Output::Other => None,
    });
    let users = of_outputs.chain(problem.operand_groups.iter().flatten()).chain(&problem.written);
    users.fold(pairs, |sum, v| sum.saturating_add(extents[v.index()].width - 1)) <= MAX_PAIRS
}

fn union<'e>(mut extents: impl Iterator<Item = &'e Extent>, more: Option<ValueId>) -> Option<Rc<[ValueId]>> {
    let mut all: Vec<ValueId> = more.into_iter().collect();
    extents.try_for_each(|e| {
        all.extend(e.known.as_ref()?.iter());
        all.sort_unstable();
        all.dedup();
        (all.len() <= MAX_KNOWN).then_some(())
    })?;
    Some(all.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LayoutId;
    use crate::layout::Layout;
    use crate::problem::Value;

    fn problem(defs: Vec<Def>, outputs: Vec<ValueId>) -> Problem {
        let value = |def| Value { name: String::new(), layout: LayoutId(0), def, keeps_representation_of: None };
        Problem {
            layouts: vec![Layout::unknown()],
            values: defs.into_iter().map(value).collect(),
            outputs: outputs.into_iter().map(Output::User).collect(),
            ..Problem::default()
        }
    }

    fn ids(range: std::ops::Range<usize>) -> Vec<ValueId> {
        range.map(ValueId::new).collect()
    }

    /// n placeholders, one alias of all of them, and views of it.
    fn wide(n: usize, views: usize, outputs: usize) -> Problem {
        let mut defs = vec![Def::Placeholder; n];
        defs.push(Def::Alias(ids(0..n)));
        defs.extend((0..views).map(|_| Def::Alias(vec![ValueId::new(n)])));
        problem(defs, vec![ValueId::new(n); outputs])
    }

    #[test]
    fn what_programs_do_is_bounded() {
        let cache = |i| Def::Alias(vec![ValueId::new(i)]);
        let chains = (0..50_000).map(|_| Def::Placeholder).chain((0..50_000).map(cache)).collect();
        assert!(is_bounded(&problem(chains, ids(0..100_000))));
        let copy = |i: usize| Def::Copy { destination: ValueId(0), source: ValueId::new(i), non_blocking: false };
        let chain = std::iter::once(Def::Placeholder).chain((0..50_000).map(copy)).collect();
        assert!(is_bounded(&problem(chain, ids(0..50_001))));
        // Unknown operators of two arguments, one after another: nothing doubles.
        let pair = |i: usize| Def::Alias(ids(i..i + 2));
        let pairs = [Def::Placeholder, Def::Placeholder].into_iter().chain((0..50_000).map(pair)).collect();
        assert!(is_bounded(&problem(pairs, ids(50_000..50_002))));
        assert!(is_bounded(&wide(300, 400, 400)));
    }

    #[test]
    fn everything_with_everything_is_not() {
        assert!(!is_bounded(&wide(1000, 1000, 0)));
        assert!(!is_bounded(&wide(1000, 0, 1000)));
        let of_copies = |n: usize| {
            let copy = Def::Copy { destination: ValueId(0), source: ValueId(0), non_blocking: false };
            let defs = std::iter::once(Def::Placeholder).chain(std::iter::repeat_n(copy, n));
            defs.chain(std::iter::repeat_n(Def::Alias(ids(1..n + 1)), n)).collect()
        };
        assert!(is_bounded(&problem(of_copies(400), Vec::new())));
        assert!(!is_bounded(&problem(of_copies(1000), Vec::new())));
    }
}
