//! One exported program, from the text of its graph to the edits of that text.

use crate::error::Error;
use crate::plan::{Form, plan};
use crate::pt2::edit::{Splice, edit};
use crate::pt2::extract;
use crate::pt2::fault::Fault;
use crate::pt2::graph::Program;
use crate::pt2::layouts::Symbols;
use crate::pt2::report::{Planned, Report};
use crate::pt2::scope::Scope;

/// What is to be done about a program.
#[derive(Debug)]
pub struct Model {
    /// What it needs and why.
    pub report: Report,
    /// The `aten.copy` nodes of all its graphs.
    pub copies_before: usize,
    /// Those that are left in the end.
    pub copies_after: usize,
    /// The edits, in order; none when it is canonical already.
    pub splices: Vec<Splice>,
}

/// Plans the program whose graph this is.
pub fn read(text: &str, form: Form) -> Result<Model, Error> {
    let program = Program::parse(text)?;
    let module = &program.graph_module;
    let symbols = Symbols::new(&program.range_constraints)?;
    let scopes = Scope::all(&program)?;
    let opaque_writes = scopes[1..].iter().any(|body| !body.writers.is_empty());
    let copies_before = scopes.iter().map(|scope| scope.copies.len()).sum();
    let mut planned = Vec::new();
    for (i, scope) in scopes.into_iter().enumerate() {
        let extract = match i {
            0 => extract::top(&scope, &module.signature, &symbols, opaque_writes)?,
            // Outputs of a body may be as they like while there is no copy in it.
            _ if scope.copies.is_empty() => continue,
            _ => extract::body(&scope, &symbols, opaque_writes)?,
        };
        // Sizes that can be proved equal are equal by now, so there is nothing to answer to the plan's queries.
        let plan = plan(&extract.problem, form);
        planned.push(Planned { scope, extract, plan });
    }
    let report = Report::new(&planned, &module.signature, &symbols)?;
    let mut model = Model { report, copies_before, copies_after: copies_before, splices: Vec::new() };
    for (i, Planned { scope, extract, plan }) in planned.iter().enumerate() {
        if !plan.changes_nothing() {
            let mut edits = edit(text, scope, extract, plan, (i == 0).then_some(module))?;
            model.splices.append(&mut edits.splices);
            model.copies_after = model.copies_after + plan.inserts.len() - edits.copies_removed;
        }
    }
    model.splices.sort_unstable();
    Ok(model)
}

/// Checks a rewritten text: it must parse, and need nothing.
pub fn check(text: &str, form: Form, copies: usize) -> Result<(), Error> {
    let again = read(text, form)?;
    let is_canonical = again.report.changes_nothing && again.copies_before == copies;
    if is_canonical { Ok(()) } else { Err(Fault::Internal.at("a second rewrite would change something")) }
}
