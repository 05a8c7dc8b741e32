//! Every small problem, against an interpreter of parallel assignment and against the checker (see `support::small`).
//!
//! For up to three targets every other choice of copies, orders and temporaries is tried as well: none that is right
//! may be cheaper.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use mutcanon::Form;
use mutcanon::parallel_copy::Step;
use mutcanon::problem::Problem;
use support::small::{
    ALL, Bare, Case, Choice, CopyOfCopy, OneCopy, User, View, Wrap, build, check, each_case, is_copy, mutation_count,
    users,
};

/// The cheapest right choice, by trying them all.
fn cheapest(problem: &Problem, form: Form) -> usize {
    let n = mutation_count(problem);
    let copies: Vec<usize> = (0..problem.values.len()).filter(|&v| is_copy(problem, v)).collect();
    let outputs = problem.outputs.len();
    let mut best = usize::MAX;
    for bits in 0..1u32 << (copies.len() + outputs) {
        let mut collapsed = vec![false; problem.values.len()];
        for (b, &copy) in copies.iter().enumerate() {
            collapsed[copy] = bits >> b & 1 == 1;
        }
        let inserted: Vec<bool> = (0..outputs).map(|i| bits >> (copies.len() + i) & 1 == 1).collect();
        for order in permutations(n) {
            let saves = if form == Form::Minimal { 1u32 << n } else { 1 };
            for saved in 0..saves {
                let mut steps: Vec<Step> = (0..n).filter(|i| saved >> i & 1 == 1).map(Step::Save).collect();
                steps.extend(order.iter().map(|&o| Step::Write(o)));
                let choice =
                    Choice { collapsed: collapsed.clone(), inserted: inserted.clone(), order: order.clone(), steps };
                if choice.cost(problem) < best && check(problem, &choice, form).is_ok() {
                    best = choice.cost(problem);
                }
            }
        }
    }
    best
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for shorter in permutations(n - 1) {
        for at in 0..n {
            let mut longer = shorter.clone();
            longer.insert(at, n - 1);
            all.push(longer);
        }
    }
    all
}

fn right_and_stable(case: &Case) {
    let problem = build(case);
    for form in [Form::Portable, Form::Minimal] {
        let plan = mutcanon::plan(&problem, form);
        let choice = Choice::of(&problem, &plan);
        if let Err(what) = check(&problem, &choice, form) {
            panic!("{what}\n{case:?}\n{form:?} {plan:#?}");
        }
        if let Some((case, verdict)) = support::programs::objection(&problem, &plan) {
            panic!("{verdict:#?}\n{}", mutcanon::check::text::print(&case));
        }
    }
}

#[test]
fn up_to_three_targets_are_right() {
    for targets in 1..=2 {
        each_case(targets, &ALL, &users(targets, &ALL), right_and_stable);
    }
    each_case(3, &ALL, &users(3, &[Bare, OneCopy]), right_and_stable);
}

#[test]
fn four_targets_are_right() {
    let users = [User::None, User::SameAsTarget(1), User::SameAsTargets, User::Own(0, OneCopy)];
    each_case(4, &[Bare, View, OneCopy], &users, right_and_stable);
}

#[test]
fn nothing_right_is_cheaper() {
    let compare = |case: &Case| {
        // Two things that we do not exploit: to write a copy of a target back to it changes nothing, and where several
        // outputs came as one bare target, a new copy for the right one of them may save a temporary.
        let odd = |(i, &(base, wrap)): (usize, &(usize, Wrap))| match wrap {
            Bare => base < case.targets && base != i,
            OneCopy | CopyOfCopy => base == i,
            _ => false,
        };
        if case.picks.iter().enumerate().any(odd) {
            return;
        }
        let problem = build(case);
        for form in [Form::Portable, Form::Minimal] {
            let plan = mutcanon::plan(&problem, form);
            // A repair of a program that was wrong on arrival need not be the cheapest.
            if !plan.inserts.is_empty() {
                continue;
            }
            let found = Choice::of(&problem, &plan).cost(&problem);
            let best = cheapest(&problem, form);
            assert!(found <= best, "{found} copies where {best} do\n{case:?}\n{form:?} {plan:#?}");
        }
    };
    for targets in 1..=2 {
        each_case(targets, &ALL, &users(targets, &[Bare, View, OneCopy]), compare);
    }
    each_case(3, &[Bare, View, OneCopy], &[User::None, User::SameAsTargets, User::Own(0, OneCopy)], compare);
}
