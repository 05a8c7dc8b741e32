//! Problems made of choices: random ones for the tests, a fuzzer's for the fuzz target.
//!
//! Most values have one layout, so that most copies are redundant and the hazards decide; the others differ from it in
//! one respect each.

use mutcanon::ids::{LayoutId, SymbolId, ValueId};
use mutcanon::layout::{Dim, Format, Layout};
use mutcanon::problem::{Def, InputKind, Output, Problem, Value};

/// Where choices come from.
pub trait Choices {
    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize;

    /// Whether a thing happens that happens once in `n` times.
    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }
}

/// Pseudo-random choices (`SplitMix64`).
pub struct Seeded(pub u64);

impl Choices for Seeded {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).unwrap_or(0)
    }
}

/// Choices read off bytes; when they are used up, always the first.
pub struct Bytes<'a>(pub std::slice::Iter<'a, u8>);

impl Choices for Bytes<'_> {
    fn below(&mut self, n: usize) -> usize {
        self.0.next().map_or(0, |&b| b as usize % n)
    }
}

fn layouts() -> Vec<Layout> {
    let plain = |sizes: &[i64], strides: &[i64]| Layout {
        dtype: "float32".into(),
        device: "cpu".into(),
        format: Format::Strided,
        sizes: sizes.iter().map(|&n| Dim::Int(n)).collect(),
        strides: strides.iter().map(|&n| Dim::Int(n)).collect(),
        ..Layout::unknown()
    };
    let base = || plain(&[2, 3], &[3, 1]);
    let symbolic = |i: u32| {
        let mut layout = base();
        layout.sizes[0] = Dim::Symbol(SymbolId(i));
        layout
    };
    let strided = |i: u32| {
        let mut layout = base();
        layout.strides[0] = Dim::Symbol(SymbolId(i));
        layout
    };
    let quantized = |name: &str| Layout { dtype: "qint8".into(), quantizer: Some(name.into()), ..base() };
    vec![
        base(),
        Layout { dtype: "float16".into(), ..base() },
        Layout { device: "cuda".into(), ..base() },
        plain(&[2, 3], &[1, 2]),
        plain(&[1, 3], &[3, 1]),
        plain(&[1, 3], &[7, 1]),
        plain(&[1, 3], &[3, 2]),
        plain(&[0, 3], &[3, 1]),
        plain(&[0, 3], &[1, 9]),
        plain(&[3], &[1]),
        symbolic(0),
        symbolic(1),
        symbolic(2),
        strided(0),
        strided(1),
        Layout { conj: true, ..base() },
        Layout { neg: true, ..base() },
        quantized("a"),
        quantized("b"),
        quantized(""),
        Layout { format: Format::Other("sparse".into()), sizes: vec![], strides: vec![], ..base() },
        Layout::unknown(),
    ]
}

/// A problem. It is always valid.
pub fn problem(choices: &mut dyn Choices) -> Problem {
    let mut problem = Problem {
        symbols: ["s0", "s1", "s2"].map(str::to_owned).to_vec(),
        layouts: layouts(),
        is_body: choices.one_in(8),
        ..Problem::default()
    };
    // Unequal ones are left unproved.
    if choices.one_in(2) {
        problem.equalities.insert(Dim::Symbol(SymbolId(0)), Dim::Symbol(SymbolId(1)));
    }
    let inputs = 1 + choices.below(5);
    let variety = choices.one_in(3);
    let favourite = if choices.one_in(4) { choices.below(problem.layouts.len()) } else { 0 };
    for _ in 0..inputs {
        let layout = layout(choices, &problem, favourite, variety);
        push(&mut problem, layout, Def::Placeholder, None);
    }
    for _ in 0..choices.below(13) {
        value(choices, &mut problem, favourite, variety);
    }
    outputs(choices, &mut problem, inputs);
    for _ in 0..choices.below(4).saturating_sub(2) {
        let group = (0..2 + choices.below(2)).map(|_| any(choices, &problem)).collect();
        problem.operand_groups.push(group);
    }
    if choices.one_in(12) {
        let written = any(choices, &problem);
        problem.written.push(written);
    }
    problem.opaque_writes = choices.one_in(40);
    problem
}

fn push(problem: &mut Problem, layout: usize, def: Def, keeps_representation_of: Option<ValueId>) {
    problem.values.push(Value { name: String::new(), layout: LayoutId::new(layout), def, keeps_representation_of });
}

fn any(choices: &mut dyn Choices, problem: &Problem) -> ValueId {
    // The last values are the deepest.
    let (n, back) = (problem.values.len(), choices.one_in(2));
    ValueId::new(if back { n - 1 - choices.below(n.min(4)) } else { choices.below(n) })
}

fn layout(choices: &mut dyn Choices, problem: &Problem, favourite: usize, variety: bool) -> usize {
    if variety && choices.one_in(3) { choices.below(problem.layouts.len()) } else { favourite }
}

fn value(choices: &mut dyn Choices, problem: &mut Problem, favourite: usize, variety: bool) {
    let layout = layout(choices, problem, favourite, variety);
    match choices.below(8) {
        0 => {
            let kept = choices.one_in(2).then(|| any(choices, problem));
            let layout = kept.map_or(layout, |k| problem.values[k.index()].layout.index());
            push(problem, layout, Def::Fresh, kept);
        }
        1 | 2 => {
            let of = any(choices, problem);
            // A view of the whole, most of the time.
            let layout = if choices.one_in(4) { layout } else { problem.values[of.index()].layout.index() };
            push(problem, layout, Def::Alias(vec![of]), None);
        }
        3 => {
            let of = (0..2 + choices.below(2)).map(|_| any(choices, problem)).collect();
            push(problem, layout, Def::Alias(of), None);
        }
        _ => {
            let (destination, source) = (any(choices, problem), any(choices, problem));
            // A copy looks like its destination; a front end that says otherwise is not believed.
            let layout = if choices.one_in(30) { layout } else { problem.values[destination.index()].layout.index() };
            let non_blocking = choices.one_in(20);
            push(problem, layout, Def::Copy { destination, source, non_blocking }, None);
        }
    }
}

/// A value that can be copied without loss, as a write-back has to do it.
fn any_strided(choices: &mut dyn Choices, problem: &Problem) -> Option<ValueId> {
    let value = any(choices, problem);
    (problem.layout(value).format == Format::Strided).then_some(value)
}

fn outputs(choices: &mut dyn Choices, problem: &mut Problem, inputs: usize) {
    for i in 0..inputs {
        let target = ValueId::new(i);
        let kind = InputKind::ALL[choices.below(5) % 3];
        if !choices.one_in(6) {
            problem.kinds.insert(target, kind);
        }
        let is_strided = problem.layout(target).format == Format::Strided;
        if !problem.is_body
            && is_strided
            && !choices.one_in(4)
            && let Some(value) = any_strided(choices, problem)
        {
            let pinned = problem.kinds.get(&target).map_or_else(|| choices.one_in(2), |&k| k == InputKind::UserInput);
            problem.outputs.push(Output::Mutation { target, value, pinned });
        }
    }
    for _ in 0..choices.below(4) {
        let value = any_strided(choices, problem).filter(|_| !choices.one_in(8));
        problem.outputs.push(value.map_or(Output::Other, Output::User));
    }
}
