//! The order in which a graph lists its nodes decides nothing: two orders of one program have one plan.
//!
//! `MUTCANON_PROBLEMS=1000000 cargo test --release --test order` tries that many instead of the usual number.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use mutcanon::ids::ValueId;
use mutcanon::plan::{Decision, Plan};
use mutcanon::problem::{Def, Output, Problem};
use mutcanon::{Form, text};
use support::random::{self, Choices, Seeded};

fn count() -> u64 {
    std::env::var("MUTCANON_PROBLEMS").ok().and_then(|n| n.parse().ok()).unwrap_or(30_000)
}

/// The same problem with its values in another order, in which operands still come first; and the old numbers.
fn shuffled(problem: &Problem, choices: &mut dyn Choices) -> (Problem, Vec<usize>) {
    let operands = |v: usize| {
        let value = &problem.values[v];
        let read = match &value.def {
            Def::Placeholder | Def::Fresh => Vec::new(),
            Def::Alias(of) => of.clone(),
            Def::Copy { destination, source, .. } => vec![*destination, *source],
        };
        read.into_iter().chain(value.keeps_representation_of).map(ValueId::index).collect::<Vec<_>>()
    };
    let n = problem.values.len();
    // Inputs come first and in the signature's order.
    let mut order: Vec<usize> = (0..n).filter(|&v| problem.values[v].def == Def::Placeholder).collect();
    while order.len() < n {
        let ready: Vec<usize> =
            (0..n).filter(|v| !order.contains(v) && operands(*v).iter().all(|o| order.contains(o))).collect();
        order.push(ready[choices.below(ready.len())]);
    }
    let mut place = vec![ValueId(0); n];
    for (new, &old) in order.iter().enumerate() {
        place[old] = ValueId::new(new);
    }
    let at = |v: &ValueId| place[v.index()];
    let all = |values: &[ValueId]| values.iter().map(at).collect::<Vec<_>>();
    let mut other = problem.clone();
    for (new, &old) in order.iter().enumerate() {
        let mut value = problem.values[old].clone();
        value.def = match value.def {
            Def::Alias(of) => Def::Alias(all(&of)),
            Def::Copy { destination, source, non_blocking } => {
                Def::Copy { destination: at(&destination), source: at(&source), non_blocking }
            }
            def => def,
        };
        value.keeps_representation_of = value.keeps_representation_of.as_ref().map(at);
        other.values[new] = value;
    }
    other.kinds = problem.kinds.iter().map(|(v, kind)| (at(v), *kind)).collect();
    for output in &mut other.outputs {
        match output {
            Output::Mutation { target, value, .. } => (*target, *value) = (at(target), at(value)),
            Output::User(value) => *value = at(value),
            Output::Other => {}
        }
    }
    other.operand_groups = problem.operand_groups.iter().map(|g| all(g)).collect();
    other.written = all(&problem.written);
    other.read = all(&problem.read);
    (other, order)
}

/// What is decided, in terms of the old numbers.
fn outcome(problem: &Problem, form: Form, old: &[usize]) -> (Vec<bool>, Plan) {
    let mut plan = mutcanon::plan(problem, form);
    let mut collapses = vec![false; old.len()];
    for (copy, decision) in std::mem::take(&mut plan.decisions) {
        collapses[old[copy.index()]] = matches!(decision, Decision::Collapse(_));
    }
    for insert in &mut plan.inserts {
        insert.value = ValueId::new(old[insert.value.index()]);
        insert.reason.blame = None;
    }
    plan.queries.clear();
    (collapses, plan)
}

#[test]
fn the_order_of_the_nodes_decides_nothing() {
    for seed in 0..count() {
        let choices = &mut Seeded(seed);
        let problem = random::problem(choices);
        let (other, old) = shuffled(&problem, choices);
        other.validate().unwrap();
        let same: Vec<usize> = (0..old.len()).collect();
        for form in [Form::Portable, Form::Minimal] {
            if outcome(&problem, form, &same) != outcome(&other, form, &old) {
                let plans = [&problem, &other].map(|p| text::print_plan(p, &mutcanon::plan(p, form)));
                panic!("seed {seed}: {old:?}\n{}\n{}\n{}", text::print(&problem), plans[0], plans[1]);
            }
        }
    }
}
