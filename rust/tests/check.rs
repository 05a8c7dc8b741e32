//! Runs `rust/filetests/check/*.check`: two programs and a consumer, and below them what the checker says.
//!
//! `MUTCANON_BLESS=1 cargo test --test check` rewrites the expected part. A file is named after a code that it
//! shows, or `right-`.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use mutcanon::check::{Verdict, check, text};

fn files() -> Vec<(PathBuf, String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rust/filetests/check");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "check"));
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let split = text.find("---- ").unwrap_or(text.len());
        let (source, expected) = text.split_at(split);
        (path, source.to_owned(), expected.to_owned())
    };
    paths.into_iter().map(read).collect()
}

fn verdict(source: &str) -> Verdict {
    check(&text::parse(source).unwrap_or_else(|e| panic!("{e}\n{source}"))).unwrap()
}

fn outcome(verdict: &Verdict) -> String {
    let mut out = String::from("---- verdict\n");
    for (kind, remarks) in [("objection", &verdict.objections), ("warning", &verdict.warnings)] {
        for remark in remarks {
            writeln!(out, "{kind} {}: {}", remark.code, remark.message).unwrap();
        }
    }
    out
}

#[test]
fn every_file_has_the_verdict_it_says() {
    for (path, source, expected) in files() {
        let found = outcome(&verdict(&source));
        if std::env::var_os("MUTCANON_BLESS").is_some() {
            // At once, since other tests are reading it.
            let new = path.with_extension("new");
            fs::write(&new, format!("{source}{found}")).unwrap();
            fs::rename(new, path).unwrap();
        } else {
            assert_eq!(found, expected, "{}", path.display());
        }
    }
}

#[test]
fn file_names_tell_the_verdict() {
    let mut shown = BTreeSet::new();
    for (path, source, _) in files() {
        let name = path.file_stem().unwrap().to_str().unwrap().replace('-', "_");
        let verdict = verdict(&source);
        let codes = verdict.objections.iter().chain(&verdict.warnings).map(|o| o.code);
        let codes: Vec<_> = codes.chain(verdict.objections.is_empty().then_some("right")).collect();
        assert!(codes.iter().any(|c| name.starts_with(c)), "{}: {codes:?}", path.display());
        shown.extend(codes);
    }
    let all = [
        "effects",
        "inputs",
        "names",
        "never_written",
        "one_tensor",
        "order",
        "outputs",
        "right",
        "shared_node",
        "sharing",
        "signature",
        "targets",
        "type",
        "value",
        "write_back",
    ];
    assert_eq!(shown.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn a_program_is_right_by_itself() {
    for (path, source, _) in files().iter().filter(|(path, ..)| !path.ends_with("targets-unknown.check")) {
        let mut case = text::parse(source).unwrap();
        case.after = case.before.clone();
        let mut objections = check(&case).unwrap().objections;
        // What the consumer gets wrong, it gets wrong in this one as well.
        objections.retain(|o| o.code != "write_back");
        assert_eq!(objections, [], "{}", path.display());
    }
}

#[test]
fn the_textual_form_reads_what_it_prints() {
    for (path, source, _) in files() {
        let printed = text::print(&text::parse(&source).unwrap());
        let again = text::parse(&printed).unwrap_or_else(|e| panic!("{}: {e}\n{printed}", path.display()));
        assert_eq!(text::print(&again), printed, "{}", path.display());
        assert_eq!(verdict(&printed), verdict(&source), "{}", path.display());
    }
}

#[test]
fn nonsense_is_refused_with_its_line() {
    let header = "type T0 = float32 cpu [ 2 ] [ 1 ]\nconsumer torch\nbefore\n%a : T0 = input buffer a\n";
    for (line, message) in [
        ("type T5 = other x", "expected the type T1"),
        ("type T1 = float32 cpu [ 2 ] [ ]", "1 sizes and 0 strides"),
        ("type T1 = float32 cpu [ 2 ] [ 1 ] shiny", "unknown flag `shiny`"),
        ("consumer nobody", "expected torch, executorch or steps"),
        ("%b : T7 = copy %a %a", "unknown type `T7`"),
        ("%b : T0 = copy %a %z", "unknown value `%z`"),
        ("%b : T0 = call f @g", "unknown body `@g`"),
        ("%b : T0 = call f ; same 3 %a", "a result that there is not"),
        ("%b : T0 = call f ; shiny", "unknown clause `shiny`"),
        ("%b : ( T0 T0 ) = copy %a %a", "an input or a copy is one value"),
        ("b : T0 = copy %a %a", "a value's name begins with %"),
        ("output %a as", "expected `as` and a name"),
        ("output \"x", "a quoted word does not end"),
        ("output \"\\x\"", "an unknown escape"),
        ("end", "nothing to end"),
        ("shine", "unknown statement `shine`"),
        ("before", "expected one program before and one after"),
    ] {
        let error = text::parse(&format!("{header}{line}\n")).unwrap_err();
        assert_eq!(error.to_string(), format!("line 5: {message}"));
    }
    let deep = "body f\n".repeat(100);
    assert!(text::parse(&format!("{header}{deep}")).is_err());
    assert!(text::parse(header).is_err());
    let contradiction = format!("equal 2 3\n{header}after\n%a : T0 = input buffer a\n");
    assert!(check(&text::parse(&contradiction).unwrap()).is_err());
}

#[test]
fn long_chains_take_linear_time() {
    // A million nodes would do as well; what is quadratic, or recursive, is noticed at a tenth.
    let mut source = String::from("type T0 = float32 cpu [ 2 ] [ 1 ]\nconsumer torch\n");
    for program in ["before", "after"] {
        writeln!(source, "{program}\n%a : T0 = input buffer a\n%v0 : T0 = call f %a ; view 0 %a").unwrap();
        for i in 1..100_000 {
            let p = i - 1;
            let line = match i % 4 {
                0 => format!("copy %a %v{p}"),
                1 => format!("call view %v{p} ; view 0 %v{p}"),
                2 => format!("call maybe %v{p} %a ; may 0 %v{p} %a"),
                _ => format!("call sin %v{p}"),
            };
            writeln!(source, "%v{i} : T0 = {line}").unwrap();
        }
        writeln!(source, "%w : T0 = call add %a 1 ; same 0 %a ; writes %a 0\noutput %v99999\noutput %v50002").unwrap();
    }
    let start = std::time::Instant::now();
    assert!(verdict(&source).is_right());
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
