//! The planner against the checker on random problems.
//!
//! `MUTCANON_PROBLEMS=1000000 cargo test --release --test against` tries that many instead of the usual number.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use mutcanon::{Form, text};
use support::{programs, random};

fn count() -> u64 {
    std::env::var("MUTCANON_PROBLEMS").ok().and_then(|n| n.parse().ok()).unwrap_or(30_000)
}

#[test]
fn the_checker_agrees_with_every_plan() {
    for seed in 0..count() {
        let problem = random::problem(&mut random::Seeded(seed));
        problem.validate().unwrap();
        for form in [Form::Portable, Form::Minimal] {
            let plan = mutcanon::plan(&problem, form);
            if let Some((case, verdict)) = programs::objection(&problem, &plan) {
                panic!(
                    "seed {seed}: {verdict:#?}\n{}\n{}\n{}",
                    text::print(&problem),
                    text::print_plan(&problem, &plan),
                    mutcanon::check::text::print(&case)
                );
            }
        }
    }
}
