//! The archive path. Paths and options go in, JSON comes out; the GIL is free for all of the work.

use std::path::PathBuf;

use pyo3::prelude::*;
use serde::Serialize;

use super::read_form;
use crate::error::Error;
use crate::pt2::{self, ArchiveReport, Options};

#[derive(Serialize)]
struct Outcome<'r> {
    action: &'static str,
    #[serde(flatten)]
    report: &'r ArchiveReport,
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| pt2::fault::Fault::Internal.at(e))
}

/// What an archive is and what its models need, as JSON.
#[pyfunction]
#[pyo3(signature = (path, form, *, verify = false))]
pub fn analyze_archive(py: Python<'_>, path: PathBuf, form: &str, verify: bool) -> PyResult<String> {
    let options = Options { form: read_form(form)?, verify };
    Ok(py.detach(|| json(&pt2::analyze(&path, options)?))?)
}

/// Writes the canonical form of an archive; what was done and why, as JSON.
#[pyfunction]
#[pyo3(signature = (source, destination, form, *, verify = false))]
pub fn rewrite_archive(
    py: Python<'_>,
    source: PathBuf,
    destination: PathBuf,
    form: &str,
    verify: bool,
) -> PyResult<String> {
    let options = Options { form: read_form(form)?, verify };
    Ok(py.detach(|| {
        let (action, report) = pt2::rewrite(&source, &destination, options)?;
        json(&Outcome { action: action.as_str(), report: &report })
    })?)
}

/// The reasons for which an archive is refused: code and sentence.
#[pyfunction]
pub fn refusals() -> Vec<(&'static str, &'static str)> {
    pt2::fault::Fault::ALL.iter().map(|fault| (fault.as_str(), fault.sentence())).collect()
}
