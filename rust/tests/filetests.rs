//! Runs `rust/filetests/*.mut`: a problem, and below it the plan for each form.
//!
//! `MUTCANON_BLESS=1 cargo test --test filetests` rewrites the expected part; the diff is for review. A file is named
//! after the decision that it shows: `collapse-`, `keep-CODE-`, `order-`, `temporary-`, `finding-CODE-`; `inplace-` files
//! hold a flow and its schedule, `inplace-refused-CODE` one that stays functional.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use mutcanon::findings::{self, FindingCode};
use mutcanon::plan::Decision;
use mutcanon::reasons::{Code, InPlaceCode};
use mutcanon::reinplace::{Verdict, schedule};
use mutcanon::{Form, flow_text, text};

fn files() -> Vec<PathBuf> {
    all_files(false)
}

fn all_files(in_place: bool) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rust/filetests");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "mut"));
    let is_in_place = |p: &PathBuf| p.file_name().unwrap().to_str().unwrap().starts_with("inplace-");
    files.retain(|p| is_in_place(p) == in_place);
    files.sort();
    assert!(!files.is_empty());
    files
}

fn outcome(source: &str) -> String {
    let problem = text::parse(source).unwrap_or_else(|e| panic!("{e}"));
    let mut out = String::new();
    for form in [Form::Portable, Form::Minimal] {
        let plan = mutcanon::plan(&problem, form);
        writeln!(out, "---- {}", form.as_str()).unwrap();
        out += &text::print_plan(&problem, &plan);
    }
    out += "---- findings\n";
    out += &text::print_findings(&findings::find(&problem));
    out
}

fn in_place_outcome(source: &str) -> String {
    let flow = flow_text::parse(source).unwrap_or_else(|e| panic!("{e}"));
    format!("---- schedule\n{}", flow_text::print_schedule(&flow, &schedule(&flow)))
}

#[test]
fn every_file_has_the_plan_it_says() {
    compare_or_bless(&files(), outcome);
}

#[test]
fn every_in_place_file_has_the_schedule_it_says() {
    compare_or_bless(&all_files(true), in_place_outcome);
}

fn compare_or_bless(files: &[PathBuf], outcome: impl Fn(&str) -> String) {
    let bless = std::env::var_os("MUTCANON_BLESS").is_some();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let split = text.find("---- ").unwrap_or(text.len());
        let (source, expected) = text.split_at(split);
        let found = outcome(source);
        if bless {
            // At once, since other tests are reading it.
            let new = file.with_extension("new");
            fs::write(&new, format!("{source}{found}")).unwrap();
            fs::rename(new, file).unwrap();
        } else {
            assert_eq!(found, expected, "{}", file.display());
        }
    }
}

#[test]
fn the_textual_form_reads_what_it_prints() {
    for file in files() {
        let text = fs::read_to_string(&file).unwrap();
        let source = text.split("---- ").next().unwrap();
        let problem = text::parse(source).unwrap();
        let printed = text::print(&problem);
        let again = text::parse(&printed).unwrap_or_else(|e| panic!("{}: {e}\n{printed}", file.display()));
        assert_eq!(text::print(&again), printed, "{}", file.display());
        for form in [Form::Portable, Form::Minimal] {
            let plans = [&problem, &again].map(|p| text::print_plan(p, &mutcanon::plan(p, form)));
            assert_eq!(plans[0], plans[1], "{}", file.display());
        }
    }
}

#[test]
fn file_names_tell_the_decision() {
    let mut shown = BTreeSet::new();
    let mut found = BTreeSet::new();
    for file in files() {
        let name = file.file_stem().unwrap().to_str().unwrap().to_string();
        let source = fs::read_to_string(&file).unwrap();
        let problem = text::parse(source.split("---- ").next().unwrap()).unwrap();
        let plans = [Form::Portable, Form::Minimal].map(|f| mutcanon::plan(&problem, f));
        let mut codes = BTreeSet::new();
        for plan in &plans {
            codes.extend(plan.inserts.iter().map(|i| i.reason.code));
            codes.extend(plan.decisions.iter().filter_map(|(_, d)| match d {
                Decision::Keep(reason) => Some(reason.code),
                Decision::Collapse(_) => None,
            }));
        }
        if let Some(rest) = name.strip_prefix("keep-") {
            let code = Code::ALL.iter().find(|c| rest.starts_with(&c.as_str().replace('_', "-")));
            let code = code.unwrap_or_else(|| panic!("{name}: no such code"));
            assert!(codes.contains(code), "{name}: not shown, only {codes:?}");
            shown.insert(*code);
        } else if name.starts_with("collapse-") {
            let collapses = |d: &(_, Decision)| matches!(d.1, Decision::Collapse(_));
            assert!(plans[0].decisions.iter().any(collapses), "{name}: nothing collapses");
        } else if name.starts_with("order-") {
            assert!(plans.iter().any(|p| !p.hazards.is_empty()), "{name}: nothing to order");
        } else if name.starts_with("temporary-") {
            let saves = |s: &_| matches!(s, mutcanon::parallel_copy::Step::Save(_));
            assert!(plans[1].write_backs.iter().any(saves), "{name}: no temporary");
        } else if let Some(rest) = name.strip_prefix("finding-") {
            let code = FindingCode::ALL.iter().find(|c| rest.starts_with(&c.as_str().replace('_', "-")));
            let code = code.unwrap_or_else(|| panic!("{name}: no such code"));
            assert!(findings::find(&problem).iter().any(|f| f.code == *code), "{name}: not found");
            found.insert(*code);
        } else {
            panic!("{name}: no known prefix");
        }
    }
    let missing: Vec<_> = Code::ALL.iter().filter(|c| !shown.contains(c)).collect();
    assert!(missing.is_empty(), "no keep- file shows {missing:?}");
    let missing: Vec<_> = FindingCode::ALL.iter().filter(|c| !found.contains(c)).collect();
    assert!(missing.is_empty(), "no finding- file shows {missing:?}");
}

#[test]
fn in_place_files_tell_the_decision() {
    let mut shown = BTreeSet::new();
    for file in all_files(true) {
        let name = file.file_stem().unwrap().to_str().unwrap().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let flow = flow_text::parse(text.split("---- ").next().unwrap()).unwrap();
        let printed = flow_text::print(&flow);
        assert_eq!(flow_text::parse(&printed).unwrap(), flow, "{name}: does not read what it prints");
        let verdicts = schedule(&flow).verdicts;
        if let Some(rest) = name.strip_prefix("inplace-refused-") {
            let code = InPlaceCode::ALL.iter().find(|c| rest.starts_with(&c.as_str().replace('_', "-")));
            let code = *code.unwrap_or_else(|| panic!("{name}: no such code"));
            let is_shown = |v: &Verdict| matches!(v, Verdict::Refused(r) if r.code == code);
            assert!(verdicts.iter().any(is_shown), "{name}: not shown");
            shown.insert(code);
        } else if !name.starts_with("inplace-no-candidates-") {
            assert!(verdicts.contains(&Verdict::InPlace), "{name}: nothing is in place");
        }
    }
    let missing: Vec<_> = InPlaceCode::ALL.iter().filter(|c| !shown.contains(c)).collect();
    assert!(missing.is_empty(), "no inplace-refused- file shows {missing:?}");
}
