//! The archive path. Paths and options go in, JSON comes out; the GIL is free for all of the work.

use std::path::PathBuf;

use pyo3::prelude::*;
use serde::Serialize;

use super::read_form;
use crate::check::archive;
use crate::check::certificate::Certificate;
use crate::error::Error;
use crate::plan::Form;
use crate::pt2::fault::Fault;
use crate::pt2::{self, ArchiveReport, Options};

#[derive(Serialize)]
struct Outcome<'r> {
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<Certificate>,
    #[serde(flatten)]
    report: &'r ArchiveReport,
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| Fault::Internal.at(e))
}

/// What an archive is and what its models need, as JSON.
#[pyfunction]
#[pyo3(signature = (path, form, *, verify = false))]
pub fn analyze_archive(py: Python<'_>, path: PathBuf, form: &str, verify: bool) -> PyResult<String> {
    let options = Options { form: read_form(form)?, verify, check: false, embed: false };
    Ok(py.detach(|| json(&pt2::analyze(&path, options)?))?)
}

/// Writes the canonical form of an archive; what was done and why, as JSON.
#[pyfunction]
#[pyo3(signature = (source, destination, form, *, verify = false, check = false, embed = false))]
pub fn rewrite_archive(
    py: Python<'_>,
    source: PathBuf,
    destination: PathBuf,
    form: &str,
    verify: bool,
    check: bool,
    embed: bool,
) -> PyResult<String> {
    let options = Options { form: read_form(form)?, verify, check, embed };
    Ok(py.detach(|| {
        let done = pt2::rewrite(&source, &destination, options)?;
        json(&Outcome { action: done.action.as_str(), certificate: done.certificate, report: &done.report })
    })?)
}

/// Whether an archive is a right rewrite of another, and whether a certificate says so truly. For each model objections
/// and warnings, and the certificate, as JSON.
#[pyfunction]
#[pyo3(signature = (before, after, form, certificate = None))]
pub fn verify_archive(
    py: Python<'_>,
    before: PathBuf,
    after: PathBuf,
    form: &str,
    certificate: Option<&str>,
) -> PyResult<String> {
    let form = match read_form(form)? {
        Form::Portable => archive::Form::Portable,
        Form::Minimal => archive::Form::Minimal,
    };
    Ok(py.detach(|| {
        let claims: Option<Certificate> = certificate.map(serde_json::from_str).transpose().map_err(unreadable)?;
        let models = archive::verify(&before, &after, form, claims.as_ref())?;
        let certificate = archive::certificate(&models, form);
        json(&Verification { models, certificate })
    })?)
}

#[derive(Serialize)]
struct Verification {
    models: Vec<archive::ModelVerdict>,
    certificate: Certificate,
}

fn unreadable(error: serde_json::Error) -> Error {
    Fault::BadJson.at(format_args!("the certificate: {error}"))
}

/// The reasons for which an archive is refused: code and sentence.
#[pyfunction]
pub fn refusals() -> Vec<(&'static str, &'static str)> {
    Fault::ALL.iter().map(|fault| (fault.as_str(), fault.sentence())).collect()
}
