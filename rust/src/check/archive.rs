//! Two archives: is the second one a right rewrite of the first?
//!
//! The graphs are compared as [`super::compare`] does it. Everything else must be what it was: the other entries byte
//! for byte, and in a graph's JSON whatever a rewrite has no business with, metadata of nodes that are still there for
//! one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Serialize;

use crate::check::certificate::{Certificate, ModelCertificate, SCHEMA_VERSION, certify};
use crate::check::compare::{Objection, Verdict, check};
use crate::check::json::{Shared, read};
use crate::check::program::{Case, Consumer, Graph, Role, Step};
use crate::error::Error;
use crate::pt2::fault::Fault;
use crate::pt2::sniff;
use crate::pt2::zip::{Archive, Source};

/// Longer graphs are not read.
const MAX_GRAPH: u64 = 8 << 30;

/// Whom the second archive has to be right for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Those who write in the order of the outputs: torch and `ExecuTorch`.
    Portable,
    /// Those who know how to assign in parallel.
    Minimal,
}

/// What is said of one model.
#[derive(Clone, Debug, Serialize)]
pub struct ModelVerdict {
    /// Its name.
    pub model: String,
    /// The verdict for all consumers.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// What was done, for others to replay.
    #[serde(skip)]
    pub certificate: ModelCertificate,
}

/// Compares two archives, and what is claimed of them; an archive that cannot be read is an error.
pub fn verify(
    before: &Path,
    after: &Path,
    form: Form,
    claims: Option<&Certificate>,
) -> Result<Vec<ModelVerdict>, Error> {
    let open = |path: &Path| -> Result<Archive<File>, Error> {
        let file = File::open(path)?;
        if Archive::is_zip(&file)? { Archive::open(file) } else { Err(Fault::BadZip.at("no zip")) }
    };
    let old = open(before).map_err(|e| e.within(before.display()))?;
    let new = open(after).map_err(|e| e.within(after.display()))?;
    let mut verdicts = compare(&old, &new, form)?;
    let made = certificate(&verdicts, form);
    let embedded = embedded(&old, &new)?;
    for claims in claims.into_iter().chain(&embedded) {
        if let (Some(difference), Some(first)) = (first_difference(claims, &made), verdicts.first_mut()) {
            first.verdict.objections.push(Objection { code: "certificate", message: difference });
        }
    }
    Ok(verdicts)
}

/// The name of the entry that holds an archive's own certificate.
pub fn certificate_name<S: Source>(archive: &Archive<S>) -> Vec<u8> {
    let first = archive.entries().first().map(|e| archive.name(e)).unwrap_or_default();
    let root = first.iter().position(|&b| b == b'/').map_or(0, |slash| slash + 1);
    [&first[..root], b"extra/mutcanon_certificate.json"].concat()
}

/// The certificate that is in the result and was not there before.
fn embedded<S: Source, R: Source>(old: &Archive<S>, new: &Archive<R>) -> Result<Option<Certificate>, Error> {
    let name = certificate_name(old);
    let Some(entry) = new.entries().get(old.entries().len()).filter(|e| new.name(e) == name) else { return Ok(None) };
    let text = new.read(entry, MAX_GRAPH)?;
    let claims = serde_json::from_slice(&text);
    claims.map(Some).map_err(|error| Fault::BadJson.at(format_args!("{}: {error}", new.shown(entry))))
}

/// Compares two archives that are open.
pub fn compare<S: Source, R: Source>(
    old: &Archive<S>,
    new: &Archive<R>,
    form: Form,
) -> Result<Vec<ModelVerdict>, Error> {
    let graphs: Vec<(usize, String)> = sniff::models(old).collect();
    if graphs.is_empty() {
        return Err(Fault::BadZip.at("no exported program"));
    }
    let mut container = Vec::new();
    entries(old, new, &graphs, &mut container)?;
    let mut verdicts = Vec::new();
    for (entry, model) in graphs {
        let mut found = compare_model(old, new, entry, &model, form)?;
        found.verdict.objections.splice(0..0, container.drain(..));
        verdicts.push(found);
    }
    Ok(verdicts)
}

/// The certificate of an archive.
#[must_use]
pub fn certificate(verdicts: &[ModelVerdict], form: Form) -> Certificate {
    let models = verdicts.iter().map(|v| v.certificate.clone()).collect();
    Certificate { schema_version: SCHEMA_VERSION, form: form.as_str().to_owned(), models }
}

fn first_difference(claims: &Certificate, made: &Certificate) -> Option<String> {
    if (claims.schema_version, &claims.form) != (made.schema_version, &made.form) {
        return Some("the certificate: it is of another version or form".into());
    }
    if claims.models.len() != made.models.len() {
        return Some(format!("the certificate: {} models instead of {}", claims.models.len(), made.models.len()));
    }
    claims.models.iter().zip(&made.models).find(|(a, b)| a != b).map(|(a, b)| {
        let what = if a.model != b.model || a.before != b.before {
            "it is of another program"
        } else if a.after != b.after {
            "it is of another result"
        } else {
            "what it claims is not so"
        };
        format!("the certificate of {}: {what}", b.model)
    })
}

/// The other entries are the same, in the same order.
fn entries<S: Source, R: Source>(
    old: &Archive<S>,
    new: &Archive<R>,
    graphs: &[(usize, String)],
    found: &mut Vec<Objection>,
) -> Result<(), Error> {
    let mut object = |message: String| found.push(Objection { code: "archive", message });
    let own = certificate_name(old);
    let has_certificate = new.entries().get(old.entries().len()).is_some_and(|e| new.name(e) == own);
    if old.entries().len() + usize::from(has_certificate) != new.entries().len() {
        object(format!("{} entries instead of {}", new.entries().len(), old.entries().len()));
    }
    for (i, (a, b)) in old.entries().iter().zip(new.entries()).enumerate() {
        let name = old.shown(a).into_owned();
        if old.name(a) != new.name(b) {
            object(format!("{}: {name} was in its place", new.shown(b)));
        } else if !graphs.iter().any(|(graph, _)| *graph == i) && !same_bytes(old, new, i)? {
            object(format!("{name}: its contents are not what they were"));
        }
    }
    Ok(())
}

fn same_bytes<S: Source, R: Source>(old: &Archive<S>, new: &Archive<R>, entry: usize) -> Result<bool, Error> {
    let (a, b) = (&old.entries()[entry], &new.entries()[entry]);
    if a.size() != b.size() || a.is_stored() != b.is_stored() {
        return Ok(false);
    }
    let (mut left, mut right) = (old.raw(a)?, new.raw(b)?);
    let (mut x, mut y) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let n = left.read(&mut x)?;
        if n == 0 {
            return Ok(right.read(&mut y)? == 0);
        }
        right.read_exact(&mut y[..n])?;
        if x[..n] != y[..n] {
            return Ok(false);
        }
    }
}

fn graph_text<S: Source>(archive: &Archive<S>, entry: usize) -> Result<String, Error> {
    let entry = archive.entries().get(entry).ok_or_else(|| Fault::BadZip.at("a model is missing"))?;
    let text = String::from_utf8(archive.read(entry, MAX_GRAPH)?);
    text.map_err(|_| Fault::NotUtf8.at(archive.shown(entry)))
}

fn compare_model<S: Source, R: Source>(
    old: &Archive<S>,
    new: &Archive<R>,
    entry: usize,
    model: &str,
    form: Form,
) -> Result<ModelVerdict, Error> {
    let (old, new) = (graph_text(old, entry)?, graph_text(new, entry)?);
    let mut shared = Shared::default();
    let before = read(&old, &mut shared).map_err(|e| e.within(format_args!("{model}, before")))?;
    let after = read(&new, &mut shared).map_err(|e| e.within(format_args!("{model}, afterwards")))?;
    let mut case = Case {
        texts: shared.texts,
        types: shared.types,
        equal: Vec::new(),
        before: before.graph,
        after: after.graph,
        consumer: Consumer::Torch,
    };
    let mut verdict = Verdict::default();
    rest(&before.rest, &after.rest, &mut verdict.objections);
    for consumer in consumers(form, &case.after) {
        case.consumer = consumer;
        let found = check(&case)?;
        let news = |known: &[Objection], found: Vec<Objection>| -> Vec<Objection> {
            found.into_iter().filter(|o| !known.contains(o)).collect()
        };
        let (objections, warnings) =
            (news(&verdict.objections, found.objections), news(&verdict.warnings, found.warnings));
        verdict.objections.extend(objections);
        verdict.warnings.extend(warnings);
    }
    let certificate = certify(model, &old, &new, &case, form)?;
    Ok(ModelVerdict { model: model.to_owned(), verdict, certificate })
}

/// What a rewrite has no business with: nothing is added, nothing is different, and only what belongs to a node may go.
fn rest(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>, found: &mut Vec<Objection>) {
    let mut object = |message: String| found.push(Objection { code: "rest", message });
    let belongs_to_a_node = |place: &str| {
        let place = place.rsplit('/').next().unwrap_or(place);
        place.starts_with("node ") || place.starts_with("value ")
    };
    for (place, text) in before {
        match after.get(place) {
            Some(same) if same == text => {}
            None if belongs_to_a_node(place) => {}
            Some(_) => object(format!("{place}: it is not what it was")),
            None => object(format!("{place}: it is gone")),
        }
    }
    for place in after.keys().filter(|p| !before.contains_key(*p) && !belongs_to_a_node(p)) {
        object(format!("{place}: it is new"));
    }
}

/// Those that a form has to be right for. To assign in parallel is to save all values, and then to write them.
fn consumers(form: Form, graph: &Graph) -> Vec<Consumer> {
    match form {
        Form::Portable => vec![Consumer::Torch, Consumer::ExecuTorch],
        Form::Minimal => {
            let outputs = graph.outputs.iter().enumerate();
            let mutations: Vec<usize> =
                outputs.filter(|(_, o)| matches!(o.role, Role::Mutation(..))).map(|(i, _)| i).collect();
            let saves = mutations.iter().map(|&i| Step::Save(i));
            vec![Consumer::Steps(saves.chain(mutations.iter().map(|&i| Step::Write(i))).collect())]
        }
    }
}
