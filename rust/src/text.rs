//! Problems and plans as text: what the fixtures hold and what a bug report should contain.
//!
//! One statement a line, `#` begins a comment:
//!
//! ```text
//! layout L = float32 cpu [2,s0] [s0,1]      # type, device, sizes, strides; then conj, neg,
//!                                           # quantizer=NAME or format=NAME
//! layout U = unknown
//! %p = placeholder L buffer                 # or user_input, other, or nothing where it is not known
//! %v = fresh L keeps %p                     # an operator that keeps its argument's representation
//! %w = alias L %p %v
//! %c = copy L %p %v                         # destination, source; then non_blocking
//! mutate %p <- %c pinned
//! output %v
//! other
//! operands %p %v
//! written %p
//! read %c                                   # a mutation value that operators read as well
//! opaque_writes
//! body
//! equal s0 2
//! ```

use std::collections::HashMap;
use std::fmt::Write;

use crate::error::Error;
use crate::findings::Finding;
use crate::ids::{LayoutId, SymbolId, ValueId};
use crate::layout::{Dim, Format, Layout};
use crate::parallel_copy::Step;
use crate::plan::{Decision, Plan};
use crate::problem::{Def, InputKind, Output, Problem, Value};
use crate::reasons::KeepReason;
use crate::redundancy::show;

/// Reads a problem and validates it.
pub fn parse(text: &str) -> Result<Problem, Error> {
    let mut parser = Parser::default();
    for (i, line) in text.lines().enumerate() {
        let line_number = i + 1;
        let code = line.split('#').next().unwrap_or_default();
        let tokens: Vec<&str> = code.split_whitespace().collect();
        parser.statement(&tokens).map_err(|message| Error::Syntax { line: line_number, message })?;
    }
    parser.problem.validate()?;
    Ok(parser.problem)
}

#[derive(Default)]
struct Parser {
    problem: Problem,
    values: HashMap<String, ValueId>,
    layouts: HashMap<String, LayoutId>,
    symbols: HashMap<String, SymbolId>,
}

type Parsed<T> = Result<T, String>;

impl Parser {
    fn statement(&mut self, tokens: &[&str]) -> Parsed<()> {
        match tokens {
            [] => {}
            ["layout", name, "=", rest @ ..] => {
                let layout = self.layout(rest)?;
                self.layouts.insert((*name).to_string(), LayoutId::new(self.problem.layouts.len()));
                self.problem.layouts.push(layout);
            }
            [name, "=", op, layout, rest @ ..] => self.value(name, op, layout, rest)?,
            ["mutate", target, "<-", value, rest @ ..] => {
                let (pinned, is_namesake) = match rest {
                    [] => (false, false),
                    ["pinned"] => (true, false),
                    ["namesake"] => (false, true),
                    ["pinned", "namesake"] => (true, true),
                    _ => return Err("expected `pinned`, `namesake`, both or nothing".into()),
                };
                if is_namesake {
                    self.problem.namesakes.push(self.problem.outputs.len());
                }
                let (target, value) = (self.find(target)?, self.find(value)?);
                self.problem.outputs.push(Output::Mutation { target, value, pinned });
            }
            ["output", value] => {
                let value = self.find(value)?;
                self.problem.outputs.push(Output::User(value));
            }
            ["other"] => self.problem.outputs.push(Output::Other),
            ["operands", values @ ..] => {
                let group = self.find_all(values)?;
                self.problem.operand_groups.push(group);
            }
            ["written", values @ ..] => {
                let written = self.find_all(values)?;
                self.problem.written.extend(written);
            }
            ["read", values @ ..] => {
                let read = self.find_all(values)?;
                self.problem.read.extend(read);
            }
            ["opaque_writes"] => self.problem.opaque_writes = true,
            ["body"] => self.problem.is_body = true,
            ["equal", a, b] => {
                let (a, b) = (self.dim(a), self.dim(b));
                self.problem.equalities.insert(a, b);
            }
            [word, ..] => return Err(format!("unknown statement `{word}`")),
        }
        Ok(())
    }

    fn layout(&mut self, tokens: &[&str]) -> Parsed<Layout> {
        if tokens == ["unknown"] {
            return Ok(Layout::unknown());
        }
        let [dtype, device, sizes, strides, flags @ ..] = tokens else {
            return Err("expected type, device, sizes and strides".into());
        };
        let mut layout = Layout {
            dtype: (*dtype).to_string(),
            device: (*device).to_string(),
            format: Format::Strided,
            sizes: self.dims(sizes)?,
            strides: self.dims(strides)?,
            ..Layout::unknown()
        };
        for flag in flags {
            match flag.split_once('=') {
                None if *flag == "conj" => layout.conj = true,
                None if *flag == "neg" => layout.neg = true,
                Some(("quantizer", name)) => layout.quantizer = Some(name.to_string()),
                Some(("format", name)) => layout.format = Format::Other(name.to_string()),
                _ => return Err(format!("unknown flag `{flag}`")),
            }
        }
        Ok(layout)
    }

    fn dims(&mut self, text: &str) -> Parsed<Vec<Dim>> {
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).ok_or("expected [..]")?;
        Ok(inner.split(',').filter(|t| !t.is_empty()).map(|t| self.dim(t)).collect())
    }

    fn dim(&mut self, text: &str) -> Dim {
        if let Ok(n) = text.parse() {
            return Dim::Int(n);
        }
        let next = SymbolId::new(self.problem.symbols.len());
        let id = *self.symbols.entry(text.to_string()).or_insert(next);
        if id == next {
            self.problem.symbols.push(text.to_string());
        }
        Dim::Symbol(id)
    }

    fn value(&mut self, name: &str, op: &str, layout: &str, rest: &[&str]) -> Parsed<()> {
        if !name.starts_with('%') {
            return Err("a value's name begins with %".into());
        }
        let layout = *self.layouts.get(layout).ok_or_else(|| format!("unknown layout `{layout}`"))?;
        let mut keeps_representation_of = None;
        let mut operands = rest;
        if let [before @ .., "keeps", kept] = rest {
            keeps_representation_of = Some(self.find(kept)?);
            operands = before;
        }
        let id = ValueId::new(self.problem.values.len());
        let def = match (op, operands) {
            ("placeholder", []) => Def::Placeholder,
            ("placeholder", [kind]) => {
                let known = InputKind::ALL.into_iter().find(|k| k.as_str() == *kind);
                self.problem.kinds.insert(id, known.ok_or_else(|| format!("unknown kind `{kind}`"))?);
                Def::Placeholder
            }
            ("fresh", []) => Def::Fresh,
            ("alias", of) => Def::Alias(self.find_all(of)?),
            ("copy", [d, s]) => self.copy(d, s, false)?,
            ("copy", [d, s, "non_blocking"]) => self.copy(d, s, true)?,
            _ => return Err(format!("`{op}` does not take these operands")),
        };
        if self.values.insert(name.to_string(), id).is_some() {
            return Err(format!("`{name}` is defined twice"));
        }
        self.problem.values.push(Value { name: name.to_string(), layout, def, keeps_representation_of });
        Ok(())
    }

    fn copy(&self, destination: &str, source: &str, non_blocking: bool) -> Parsed<Def> {
        Ok(Def::Copy { destination: self.find(destination)?, source: self.find(source)?, non_blocking })
    }

    fn find(&self, name: &str) -> Parsed<ValueId> {
        self.values.get(name).copied().ok_or_else(|| format!("unknown value `{name}`"))
    }

    fn find_all(&self, names: &[&str]) -> Parsed<Vec<ValueId>> {
        names.iter().map(|n| self.find(n)).collect()
    }
}

/// Writes a problem so that [`parse`] reads it back.
#[must_use]
pub fn print(problem: &Problem) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    for (a, b) in problem.equalities.sorted() {
        line(format!("equal {} {}", dim_text(problem, a), dim_text(problem, b)));
    }
    for (i, layout) in problem.layouts.iter().enumerate() {
        line(format!("layout L{i} = {}", layout_text(problem, layout)));
    }
    for (i, value) in problem.values.iter().enumerate() {
        let me = name(problem, ValueId::new(i));
        let (op, operands) = match &value.def {
            Def::Placeholder => {
                let kind = problem.kinds.get(&ValueId::new(i));
                ("placeholder", kind.map(|k| format!(" {}", k.as_str())).unwrap_or_default())
            }
            Def::Fresh => ("fresh", String::new()),
            Def::Alias(of) => ("alias", names(problem, of)),
            Def::Copy { destination, source, non_blocking } => {
                let flag = if *non_blocking { " non_blocking" } else { "" };
                ("copy", names(problem, &[*destination, *source]) + flag)
            }
        };
        let keeps = value.keeps_representation_of.map(|v| format!(" keeps {}", name(problem, v))).unwrap_or_default();
        line(format!("{me} = {op} L{}{operands}{keeps}", value.layout.0));
    }
    for (i, output) in problem.outputs.iter().enumerate() {
        match output {
            Output::Mutation { target, value, pinned } => {
                let pin = if *pinned { " pinned" } else { "" };
                let flag = if problem.namesakes.contains(&i) { " namesake" } else { "" };
                line(format!("mutate {} <- {}{pin}{flag}", name(problem, *target), name(problem, *value)));
            }
            Output::User(value) => line(format!("output {}", name(problem, *value))),
            Output::Other => line("other".into()),
        }
    }
    for group in &problem.operand_groups {
        line(format!("operands{}", names(problem, group)));
    }
    if !problem.written.is_empty() {
        line(format!("written{}", names(problem, &problem.written)));
    }
    if !problem.read.is_empty() {
        line(format!("read{}", names(problem, &problem.read)));
    }
    if problem.opaque_writes {
        line("opaque_writes".into());
    }
    if problem.is_body {
        line("body".into());
    }
    out
}

fn layout_text(problem: &Problem, layout: &Layout) -> String {
    if layout.format == Format::Unknown {
        return "unknown".into();
    }
    let dims = |dims: &[Dim]| dims.iter().map(|&d| dim_text(problem, d)).collect::<Vec<_>>().join(",");
    let (sizes, strides) = (dims(&layout.sizes), dims(&layout.strides));
    let mut text = format!("{} {} [{sizes}] [{strides}]", word(&layout.dtype), word(&layout.device));
    if let Format::Other(what) = &layout.format {
        let _ = write!(text, " format={}", word(what));
    }
    if layout.conj {
        text.push_str(" conj");
    }
    if layout.neg {
        text.push_str(" neg");
    }
    if let Some(quantizer) = &layout.quantizer {
        let _ = write!(text, " quantizer={}", word(quantizer));
    }
    text
}

/// A dimension without the characters that separate dimensions and words; `show` is for people.
fn dim_text(problem: &Problem, dim: Dim) -> String {
    match dim {
        Dim::Int(n) => n.to_string(),
        Dim::Symbol(s) => {
            let text = word(&problem.symbols[s.index()]).replace([',', '[', ']'], "_");
            // Two symbols may read the same after this, and must not become one.
            if problem.symbols.iter().filter(|t| **t == problem.symbols[s.index()]).count() == 1
                && text == problem.symbols[s.index()]
                && text.parse::<i64>().is_err()
            {
                text
            } else {
                format!("symbol{}:{text}", s.0)
            }
        }
    }
}

fn word(text: &str) -> String {
    text.replace(|c: char| c.is_whitespace() || c == '#', "_")
}

/// The value's name, or a made-up one.
#[must_use]
pub fn name(problem: &Problem, value: ValueId) -> String {
    let name = &problem.values[value.index()].name;
    if name.is_empty() { format!("%{}", value.0) } else { name.clone() }
}

fn names(problem: &Problem, values: &[ValueId]) -> String {
    values.iter().fold(String::new(), |mut text, &v| {
        let _ = write!(text, " {}", name(problem, v));
        text
    })
}

/// Writes a plan for people and fixtures.
#[must_use]
pub fn print_plan(problem: &Problem, plan: &Plan) -> String {
    let mut out = String::new();
    for (copy, decision) in &plan.decisions {
        let copy = name(problem, *copy);
        let _ = match decision {
            Decision::Collapse(base) => writeln!(out, "collapse {copy} -> {}", name(problem, *base)),
            Decision::Keep(reason) => writeln!(out, "keep {copy}: {}", reason_text(problem, reason)),
        };
    }
    for insert in &plan.inserts {
        let value = name(problem, insert.value);
        let reason = reason_text(problem, &insert.reason);
        let _ = writeln!(out, "insert at output {} a copy of {value}: {reason}", insert.output);
    }
    if let Some(order) = &plan.order {
        let order: Vec<_> = order.iter().map(usize::to_string).collect();
        let _ = writeln!(out, "order {}", order.join(" "));
    }
    for step in &plan.write_backs {
        let _ = match step {
            Step::Save(i) => writeln!(out, "save {i}"),
            Step::Write(i) => writeln!(out, "write {i}"),
        };
    }
    for (reader, writer) in &plan.hazards {
        let _ = writeln!(out, "hazard: {reader} reads what {writer} writes");
    }
    for &(a, b) in &plan.queries {
        let _ = writeln!(out, "unproved {} == {}", show(problem, a), show(problem, b));
    }
    out
}

/// Writes findings for people and fixtures.
#[must_use]
pub fn print_findings(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings {
        let consumers: Vec<_> = finding.consumers.iter().map(|c| c.as_str()).collect();
        let other = finding.other.map(|o| format!(", because of output {o}")).unwrap_or_default();
        let _ =
            writeln!(out, "output {}{other}: {} in {}", finding.output, finding.code.as_str(), consumers.join(", "));
    }
    out
}

/// A reason as text.
#[must_use]
pub fn reason_text(problem: &Problem, reason: &KeepReason) -> String {
    let mut text = reason.code.to_string();
    if let Some(blame) = reason.blame {
        let _ = write!(text, " {}", name(problem, blame));
    }
    if !reason.fact.is_empty() {
        let _ = write!(text, " ({})", reason.fact);
    }
    text
}
