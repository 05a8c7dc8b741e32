//! Does anybody notice a fault in the planner? Each is put in, in turn, and two have to object: the checker, and the
//! fixtures or the interpreter of the exhaustive tests.
//!
//! `MUTCANON_BLESS=1 cargo test --features faults --test faults` writes the table in `docs/proof.md` anew.

#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::fmt::Write;
use std::fs;
use std::path::Path;

use mutcanon::check::{self, Case};
use mutcanon::faults::{Fault, seed};
use mutcanon::problem::Problem;
use mutcanon::reasons::Code;
use mutcanon::{Form, text};
use support::small::{self, Bare, Choice, OneCopy, View};
use support::{programs, random};

const FORMS: [Form; 2] = [Form::Portable, Form::Minimal];
const BEGIN: &str = "<!-- begin faults -->\n";
const END: &str = "<!-- end faults -->\n";

/// A problem, where it is from, and its plans without a fault.
struct Sample {
    name: String,
    problem: Problem,
    plans: [String; 2],
}

impl Sample {
    fn new(name: String, problem: Problem) -> Self {
        let plans = FORMS.map(|form| text::print_plan(&problem, &mutcanon::plan(&problem, form)));
        Sample { name, problem, plans }
    }
}

fn fixtures() -> Vec<Sample> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rust/filetests");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    // The fixtures of in-place planning are in a language of their own.
    files.retain(|p| p.extension().is_some_and(|e| e == "mut") && !p.to_str().unwrap().contains("/inplace-"));
    files.sort();
    let sample = |p: &std::path::PathBuf| {
        let source = fs::read_to_string(p).unwrap();
        let problem = text::parse(source.split("---- ").next().unwrap()).unwrap();
        Sample::new(p.file_stem().unwrap().to_str().unwrap().to_owned(), problem)
    };
    files.iter().map(sample).collect()
}

/// What the checker says of the plan that the planner makes now.
fn objection(sample: &Sample) -> Option<&'static str> {
    let cases = FORMS.iter().flat_map(|&form| programs::cases(&sample.problem, &mutcanon::plan(&sample.problem, form)));
    let object = |case: Case| check::check(&case).unwrap().objections.first().map(|o| o.code);
    cases.into_iter().find_map(object)
}

fn has_another_plan(sample: &Sample) -> bool {
    let plan = |form| text::print_plan(&sample.problem, &mutcanon::plan(&sample.problem, form));
    FORMS.iter().zip(&sample.plans).any(|(&form, known)| plan(form) != *known)
}

/// Whether the interpreter of the exhaustive tests objects to some problem with two targets.
fn exhaustive_objects() -> bool {
    let wraps = [Bare, View, OneCopy];
    let mut objects = false;
    for targets in 1..=2 {
        small::each_case(targets, &wraps, &small::users(targets, &wraps), |case| {
            let problem = small::build(case);
            objects |= FORMS.iter().any(|&form| {
                let plan = mutcanon::plan(&problem, form);
                small::check(&problem, &Choice::of(&problem, &plan), form).is_err()
            });
        });
    }
    objects
}

#[test]
fn every_fault_is_noticed() {
    let fixtures = fixtures();
    let random: Vec<_> = (0..3000)
        .map(|n| Sample::new(format!("random problem {n}"), random::problem(&mut random::Seeded(n))))
        .collect();
    for sample in fixtures.iter().chain(&random) {
        assert_eq!(objection(sample), None, "{} without a fault", sample.name);
    }
    let faults = Code::ALL.iter().map(|&c| Fault::Ignore(c)).chain(Fault::CONFUSIONS.iter().copied());
    let mut table = String::from("| fault | the checker objects to | tests that object |\n| --- | --- | --- |\n");
    let mut unnoticed = Vec::new();
    let mut count = 0;
    for fault in faults {
        seed(Some(fault));
        count += 1;
        let checker = fixtures.iter().chain(&random).find_map(|s| Some((&s.name, objection(s)?)));
        let mut tests: Vec<_> = fixtures.iter().filter(|s| has_another_plan(s)).map(|s| s.name.as_str()).collect();
        let others = tests.len().saturating_sub(2);
        tests.truncate(2);
        let mut tests = tests.iter().map(|t| format!("`{t}`")).collect::<Vec<_>>().join(", ");
        if others > 0 {
            let _ = write!(tests, " and {others} more fixtures");
        }
        if exhaustive_objects() {
            tests += if tests.is_empty() { "exhaustive" } else { "; exhaustive" };
        }
        seed(None);
        match checker {
            Some((name, code)) if !tests.is_empty() => {
                writeln!(table, "| {} | `{name}` ({code}) | {tests} |", fault.sentence()).unwrap();
            }
            _ => unnoticed.push((fault, checker, tests)),
        }
    }
    assert!(unnoticed.is_empty(), "of {count}: {unnoticed:#?}");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/proof.md");
    let document = fs::read_to_string(&file).unwrap();
    let (before, rest) = document.split_once(BEGIN).unwrap();
    let (known, after) = rest.split_once(END).unwrap();
    if std::env::var_os("MUTCANON_BLESS").is_some() {
        fs::write(&file, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(known, table, "bless docs/proof.md");
    }
}
