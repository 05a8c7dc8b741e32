//! Flows and schedules as text, in the manner of [`crate::text`].
//!
//! ```text
//! %p = placeholder
//! %v = fresh %p %x                  # a node and what it reads
//! %w = alias %v                     # a view
//! %u = fresh %p writes %p           # a node that writes an operand already
//! mutate %p <- %v
//! output %w
//! other
//! candidate %v over %p              # then: reads %x, and: as %r where the result is another node
//! identity %c                       # copies its operand unchanged
//! ```

use std::collections::HashMap;
use std::fmt::Write;

use crate::error::Error;
use crate::flow::{Candidate, Flow, Node, Storage};
use crate::ids::ValueId;
use crate::parallel_copy::Step;
use crate::problem::Output;
use crate::reinplace::{Schedule, Verdict};

type Parsed<T> = Result<T, String>;

/// Reads a flow and validates it.
pub fn parse(text: &str) -> Result<Flow, Error> {
    let mut parser = Parser::default();
    for (i, line) in text.lines().enumerate() {
        let code = line.split('#').next().unwrap_or_default();
        let tokens: Vec<&str> = code.split_whitespace().collect();
        parser.statement(&tokens).map_err(|message| Error::Syntax { line: i + 1, message })?;
    }
    parser.flow.validate()?;
    Ok(parser.flow)
}

#[derive(Default)]
struct Parser {
    flow: Flow,
    values: HashMap<String, ValueId>,
}

impl Parser {
    fn statement(&mut self, tokens: &[&str]) -> Parsed<()> {
        match tokens {
            [] => {}
            [name, "=", op, rest @ ..] => self.node(name, op, rest)?,
            ["mutate", target, "<-", value] => {
                let (target, value) = (self.find(target)?, self.find(value)?);
                self.flow.outputs.push(Output::Mutation { target, value, pinned: false });
            }
            ["output", value] => {
                let value = self.find(value)?;
                self.flow.outputs.push(Output::User(value));
            }
            ["other"] => self.flow.outputs.push(Output::Other),
            ["identity", value] => {
                let value = self.find(value)?;
                self.flow.identities.push(value);
            }
            ["candidate", node, "over", over, rest @ ..] => {
                let (rest, operands) = split(rest, "reads");
                let node = self.find(node)?;
                let result = match rest {
                    [] => node,
                    ["as", result] => self.find(result)?,
                    _ => return Err("expected `as` or `reads`".into()),
                };
                let (over, operands) = (self.find(over)?, self.find_all(operands)?);
                self.flow.candidates.push(Candidate { node, result, over, operands });
            }
            [word, ..] => return Err(format!("unknown statement `{word}`")),
        }
        Ok(())
    }

    fn node(&mut self, name: &str, op: &str, rest: &[&str]) -> Parsed<()> {
        if !name.starts_with('%') {
            return Err("a value's name begins with %".into());
        }
        let (operands, writes) = split(rest, "writes");
        let reads = self.find_all(operands)?;
        let storage = match op {
            "placeholder" => Storage::Placeholder,
            "fresh" => Storage::Fresh,
            "alias" => Storage::Alias(reads.clone()),
            _ => return Err(format!("unknown node `{op}`")),
        };
        let id = ValueId::new(self.flow.nodes.len());
        if self.values.insert(name.to_string(), id).is_some() {
            return Err(format!("`{name}` is defined twice"));
        }
        self.flow.nodes.push(Node { name: name.to_string(), storage, reads, writes: self.find_all(writes)? });
        Ok(())
    }

    fn find(&self, name: &str) -> Parsed<ValueId> {
        self.values.get(name).copied().ok_or_else(|| format!("unknown value `{name}`"))
    }

    fn find_all(&self, names: &[&str]) -> Parsed<Vec<ValueId>> {
        names.iter().map(|n| self.find(n)).collect()
    }
}

/// What comes before a word, and what comes after.
fn split<'a, 't>(tokens: &'a [&'t str], word: &str) -> (&'a [&'t str], &'a [&'t str]) {
    match tokens.iter().position(|t| *t == word) {
        Some(at) => (&tokens[..at], &tokens[at + 1..]),
        None => (tokens, &[]),
    }
}

/// Writes a flow so that [`parse`] reads it back.
#[must_use]
pub fn print(flow: &Flow) -> String {
    let names = |values: &[ValueId]| values.iter().fold(String::new(), |text, &v| text + " " + &flow.name(v));
    let mut out = String::new();
    for (i, node) in flow.nodes.iter().enumerate() {
        let (op, operands) = match &node.storage {
            Storage::Placeholder => ("placeholder", String::new()),
            Storage::Fresh => ("fresh", names(&node.reads)),
            Storage::Alias(of) => ("alias", names(of)),
        };
        let _ = write!(out, "{} = {op}{operands}", flow.name(ValueId::new(i)));
        if !node.writes.is_empty() {
            let _ = write!(out, " writes{}", names(&node.writes));
        }
        out.push('\n');
    }
    for output in &flow.outputs {
        let _ = match output {
            Output::Mutation { target, value, .. } => {
                writeln!(out, "mutate {} <- {}", flow.name(*target), flow.name(*value))
            }
            Output::User(value) => writeln!(out, "output {}", flow.name(*value)),
            Output::Other => writeln!(out, "other"),
        };
    }
    for c in &flow.candidates {
        let _ = write!(out, "candidate {} over {}", flow.name(c.node), flow.name(c.over));
        if c.result != c.node {
            let _ = write!(out, " as {}", flow.name(c.result));
        }
        if !c.operands.is_empty() {
            let _ = write!(out, " reads{}", names(&c.operands));
        }
        out.push('\n');
    }
    for &v in &flow.identities {
        let _ = writeln!(out, "identity {}", flow.name(v));
    }
    out
}

/// Writes a schedule for people and fixtures.
#[must_use]
pub fn print_schedule(flow: &Flow, schedule: &Schedule) -> String {
    let mut out = String::new();
    for (c, verdict) in flow.candidates.iter().zip(&schedule.verdicts) {
        let (result, over) = (flow.name(c.result), flow.name(c.over));
        let _ = match verdict {
            Verdict::InPlace => writeln!(out, "in place {result} over {over}"),
            Verdict::Superseded => writeln!(out, "superseded {result} over {over}"),
            Verdict::Refused(r) => {
                let blame = r.blame.map(|b| format!(" {}", flow.name(b))).unwrap_or_default();
                writeln!(out, "refused {result} over {over}: {}{blame}", r.code)
            }
        };
    }
    for (&v, &is_left_out) in flow.identities.iter().zip(&schedule.left_out) {
        let verdict = if is_left_out { "left out" } else { "copied" };
        let _ = writeln!(out, "{verdict} {}", flow.name(v));
    }
    for placed in &schedule.steps {
        let at = flow.nodes.get(placed.before).map_or("the end".into(), |_| flow.name(ValueId::new(placed.before)));
        let _ = match placed.step {
            Step::Save(o) => writeln!(out, "before {at}: save {o}"),
            Step::Write(o) => writeln!(out, "before {at}: write {o}"),
        };
    }
    out
}
