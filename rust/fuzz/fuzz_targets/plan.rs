//! The planner against the checker: the bytes are choices of which a problem is made.
#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;
use mutcanon::{Form, text};
use support::{programs, random};

fuzz_target!(|data: &[u8]| {
    let problem = random::problem(&mut random::Bytes(data.iter()));
    problem.validate().expect("what is made is valid");
    for form in [Form::Portable, Form::Minimal] {
        let plan = mutcanon::plan(&problem, form);
        if let Some((case, verdict)) = programs::objection(&problem, &plan) {
            panic!(
                "{verdict:#?}\n{}\n{}\n{}",
                text::print(&problem),
                text::print_plan(&problem, &plan),
                mutcanon::check::text::print(&case)
            );
        }
    }
});
