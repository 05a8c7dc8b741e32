//! What an archive needs and why, as JSON. A model's report has the fields of `mutcanon.Report`, which the torch path
//! fills: `python/mutcanon/_report.py` is where they are described.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use crate::error::Error;
use crate::findings;
use crate::ids::ValueId;
use crate::parallel_copy::Step;
use crate::plan::{Decision, Plan};
use crate::problem::{Def, Output};
use crate::pt2::extract::Extract;
use crate::pt2::graph::{OutputKind, Signature};
use crate::pt2::layouts::Symbols;
use crate::pt2::scope::Scope;
use crate::reasons::KeepReason;

/// Version of the JSON form; the same as in `_report.py`.
const SCHEMA_VERSION: u32 = 1;

/// What is known of one model of an archive.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    schema_version: u32,
    form: &'static str,
    copies: Vec<CopyReport>,
    mutations: Vec<MutationReport>,
    write_backs: Vec<(&'static str, String)>,
    hazards: Vec<(String, String)>,
    findings: Vec<FindingReport>,
    reordered: bool,
    bytes_saved: Option<u64>,
    formula: String,
    /// Whether the model is canonical already.
    pub changes_nothing: bool,
}

#[derive(Clone, Debug, Serialize)]
struct CopyReport {
    node: String,
    graph: String,
    decision: &'static str,
    source: String,
    reads: Option<String>,
    code: Option<&'static str>,
    fact: String,
    blame: Option<String>,
    bytes: Option<u64>,
    formula: String,
}

#[derive(Clone, Debug, Serialize)]
struct MutationReport {
    output: usize,
    kind: &'static str,
    target: String,
    value: String,
    new_value: String,
    depth: usize,
    new_depth: usize,
}

#[derive(Clone, Debug, Serialize)]
struct FindingReport {
    code: &'static str,
    output: String,
    other: Option<String>,
    consumers: Vec<&'static str>,
    sentence: &'static str,
    advice: &'static str,
}

/// A graph with its plan.
pub struct Planned<'p, 'a> {
    /// The graph.
    pub scope: Scope<'p, 'a>,
    /// Its problem.
    pub extract: Extract,
    /// What is to be done.
    pub plan: Plan,
}

impl<'a> Planned<'_, 'a> {
    fn name(&self, value: ValueId) -> Option<&'a str> {
        self.extract.keys[value.index()].and_then(|key| self.scope.name(key))
    }

    fn shown(&self, value: ValueId) -> String {
        self.name(value).unwrap_or_default().to_string()
    }

    fn blame(&self, reason: &KeepReason) -> Option<String> {
        reason.blame.and_then(|value| self.name(value)).map(str::to_string)
    }

    fn bytes(&self, value: ValueId, symbols: &Symbols<'a>) -> Result<(Option<u64>, String), Error> {
        let name = self.name(value).unwrap_or_default();
        let Some(size) = symbols.bytes(self.scope.meta(name), name)? else { return Ok((None, String::new())) };
        Ok((size.as_integer().and_then(|n| u64::try_from(n).ok()), size.text()))
    }

    fn copies(&self, symbols: &Symbols<'a>) -> Result<Vec<CopyReport>, Error> {
        let mut reports = Vec::with_capacity(self.plan.decisions.len() + self.plan.inserts.len());
        for (copy, decision) in &self.plan.decisions {
            let Def::Copy { source, .. } = *self.extract.problem.def(*copy) else { continue };
            let (bytes, formula) = self.bytes(*copy, symbols)?;
            let (decision, reads, reason) = match decision {
                Decision::Collapse(base) => ("collapse", Some(self.shown(*base)), None),
                Decision::Keep(reason) => ("keep", None, Some(reason)),
            };
            reports.push(CopyReport {
                node: self.shown(*copy),
                graph: self.scope.path.clone(),
                decision,
                source: self.shown(source),
                reads,
                code: reason.map(|r| r.code.as_str()),
                fact: reason.map(|r| r.fact.clone()).unwrap_or_default(),
                blame: reason.and_then(|r| self.blame(r)),
                bytes,
                formula,
            });
        }
        for insert in &self.plan.inserts {
            let (bytes, formula) = self.bytes(insert.value, symbols)?;
            reports.push(CopyReport {
                node: insert.output.to_string(),
                graph: self.scope.path.clone(),
                decision: "insert",
                source: self.shown(insert.value),
                reads: None,
                code: Some(insert.reason.code.as_str()),
                fact: insert.reason.fact.clone(),
                blame: self.blame(&insert.reason),
                bytes,
                formula,
            });
        }
        Ok(reports)
    }

    fn mutations(&self, signature: &Signature<'_>) -> Vec<MutationReport> {
        let mut collapses = vec![None; self.extract.problem.values.len()];
        for (copy, decision) in &self.plan.decisions {
            if let Decision::Collapse(base) = decision {
                collapses[copy.index()] = Some(*base);
            }
        }
        // How many copies lie on the chain that ends in each value, before and after.
        let mut depths: Vec<(usize, usize)> = Vec::with_capacity(collapses.len());
        for (value, base) in self.extract.problem.values.iter().zip(&collapses) {
            depths.push(match value.def {
                Def::Copy { source, .. } => {
                    let (depth, new_depth) = depths[source.index()];
                    (depth + 1, new_depth + usize::from(base.is_none()))
                }
                _ => (0, 0),
            });
        }
        let inserted: HashSet<usize> = self.plan.inserts.iter().map(|insert| insert.output).collect();
        let mut reports = Vec::new();
        for (i, output) in self.extract.problem.outputs.iter().enumerate() {
            let Output::Mutation { value, .. } = *output else { continue };
            let (kind, target) = target(signature, &self.extract, i);
            let (depth, new_depth) = depths[value.index()];
            reports.push(MutationReport {
                output: i,
                kind,
                target,
                value: self.shown(value),
                new_value: self.shown(collapses[value.index()].unwrap_or(value)),
                depth,
                new_depth: new_depth + usize::from(inserted.contains(&i)),
            });
        }
        reports
    }

    /// What stock consumers get wrong in the program as it is.
    fn findings(&self, signature: &Signature<'_>) -> Vec<FindingReport> {
        let name = |output: usize| match target(signature, &self.extract, output) {
            (_, name) if name.is_empty() => format!("output {output}"),
            (_, name) => name,
        };
        let found = findings::find(&self.extract.problem).into_iter();
        let reports = found.map(|finding| FindingReport {
            code: finding.code.as_str(),
            output: name(finding.output),
            other: finding.other.map(name),
            consumers: finding.consumers.iter().map(|c| c.as_str()).collect(),
            sentence: finding.code.sentence(),
            advice: finding.code.advice(),
        });
        reports.collect()
    }
}

/// Kind and name of what output `i` mutates. A user input that is called as a buffer is gets a name of its own.
fn target(signature: &Signature<'_>, extract: &Extract, i: usize) -> (&'static str, String) {
    match signature.output_specs.get(i).map(|spec| &spec.value.kind) {
        Some(OutputKind::Buffer(name)) => ("buffer", name.to_string()),
        Some(OutputKind::Parameter(name)) => ("parameter", name.to_string()),
        Some(OutputKind::UserInput(name)) if extract.problem.namesakes.contains(&i) => {
            ("user_input", format!("{name} (input)"))
        }
        Some(OutputKind::UserInput(name)) => ("user_input", name.to_string()),
        _ => ("", String::new()),
    }
}

impl Report {
    /// The report of a model whose graphs, the top one first, have these plans.
    pub fn new<'a>(
        planned: &[Planned<'_, 'a>],
        signature: &Signature<'a>,
        symbols: &Symbols<'a>,
    ) -> Result<Self, Error> {
        let mut copies = Vec::new();
        let mut seen = HashSet::new();
        for graph in planned {
            // A body that is called twice is written twice, and is one body.
            if seen.insert(&graph.scope.path) {
                copies.append(&mut graph.copies(symbols)?);
            }
        }
        let Some(top) = planned.first() else { unreachable!("every program has a top graph") };
        let name = |output: usize| target(signature, &top.extract, output).1;
        let steps = top.plan.write_backs.iter().map(|step| match *step {
            Step::Save(output) => ("save", name(output)),
            Step::Write(output) => ("write", name(output)),
        });
        let (bytes_saved, formula) = total(copies.iter().filter(|c| c.decision == "collapse"));
        Ok(Report {
            schema_version: SCHEMA_VERSION,
            form: top.plan.form.as_str(),
            mutations: top.mutations(signature),
            write_backs: steps.collect(),
            hazards: top.plan.hazards.iter().map(|&(reader, writer)| (name(reader), name(writer))).collect(),
            findings: top.findings(signature),
            reordered: top.plan.order.is_some(),
            bytes_saved,
            formula,
            changes_nothing: planned.iter().all(|graph| graph.plan.changes_nothing()),
            copies,
        })
    }
}

/// The bytes of some copies together: a number, or a sum with the open terms at its end.
fn total<'c>(copies: impl Iterator<Item = &'c CopyReport>) -> (Option<u64>, String) {
    let mut known: u64 = 0;
    let mut open: Vec<(&str, u64)> = Vec::new();
    let mut places = HashMap::new();
    for copy in copies {
        let Some(bytes) = copy.bytes else {
            let term = if copy.formula.is_empty() { "?" } else { &copy.formula };
            let place = *places.entry(term).or_insert(open.len());
            if place == open.len() {
                open.push((term, 0));
            }
            open[place].1 += 1;
            continue;
        };
        known = known.saturating_add(bytes);
    }
    if open.is_empty() {
        return (Some(known), known.to_string());
    }
    let number = (known > 0).then(|| known.to_string());
    let terms = open.into_iter().map(|(t, n)| if n == 1 { t.to_string() } else { format!("{n}*({t})") });
    (None, number.into_iter().chain(terms).collect::<Vec<_>>().join(" + "))
}
