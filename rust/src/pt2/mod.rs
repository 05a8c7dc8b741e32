//! Programs in `.pt2` archives, without torch: [`analyze`] and [`rewrite`].
//!
//! The way through: [`zip`] finds the entries, [`sniff`] tells what the archive is, [`graph`] reads a graph's JSON,
//! [`scope`] and [`extract`] make the planner's problem of it (with [`alias_table`] and [`layouts`], which know without
//! torch what the torch path looks up), [`edit`] turns the plan into replacements of text, and [`zip`] writes the
//! archive with everything else copied as it is. [`atomic`] puts it in its place.
//!
//! Files come from anywhere, so none is trusted: whatever is wrong with one is a [`fault`], pickles are never opened,
//! names are never paths, and memory is bounded by the largest graph, whatever the weights.

pub mod alias_table;
pub mod atomic;
pub mod edit;
pub mod expr;
pub mod extract;
pub mod fault;
pub mod graph;
pub mod layouts;
pub mod model;
pub mod new_copy;
pub mod report;
pub mod scope;
pub mod sharing;
pub mod sniff;
pub mod zip;

use std::borrow::Cow;
use std::fs::{self, File};
use std::path::Path;

use serde::Serialize;

use crate::check;
use crate::check::certificate::Certificate;
use crate::error::Error;
use crate::plan::Form;
use crate::pt2::edit::{Edited, Splice};
use crate::pt2::fault::Fault;
use crate::pt2::report::Report;
use crate::pt2::sniff::Kind;
use crate::pt2::zip::{Archive, Output, Source};

/// Nobody's graph is that long; a file that says so wants our memory.
const MAX_GRAPH: u64 = 8 << 30;

/// What [`rewrite`] is to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The form of the result.
    pub form: Form,
    /// Whether to compare every checksum before and after, and to plan the result again, which must need nothing.
    pub verify: bool,
    /// Whether the independent checker is to compare the result with the source, and to certify it.
    pub check: bool,
    /// Whether the certificate goes into the archive too.
    pub embed: bool,
}

/// What an archive is and what its models need.
#[derive(Clone, Debug, Serialize)]
pub struct ArchiveReport {
    /// What the file is, as [`Kind::as_str`] has it.
    pub kind: &'static str,
    /// The same for people, and what can be done about it.
    pub summary: &'static str,
    /// Whether compiled models are in the archive too, which stay as they are.
    pub has_compiled_models: bool,
    /// The exported programs.
    pub models: Vec<ModelReport>,
}

/// One exported program of an archive.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    /// Its name in the archive.
    pub model: String,
    /// Length of its graph's JSON in bytes.
    pub graph_size: u64,
    /// The `aten.copy` nodes of all its graphs.
    pub copies_before: usize,
    /// Those that are left in the end.
    pub copies_after: usize,
    /// What it needs and why.
    pub report: Report,
}

/// What [`rewrite`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The destination holds the canonical form of the source.
    Rewritten,
    /// There was nothing to do; the destination holds the same bytes.
    Copied,
    /// There was nothing to do, and the file itself was the destination.
    Untouched,
    /// The file holds no exported program that we can work on; nothing was written.
    Foreign,
}

impl Action {
    /// The action's stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Rewritten => "rewritten",
            Action::Copied => "copied",
            Action::Untouched => "untouched",
            Action::Foreign => "foreign",
        }
    }
}

/// The result of [`rewrite`].
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// What was done.
    pub action: Action,
    /// Why that was right, if the checker was asked.
    pub certificate: Option<Certificate>,
    /// What the archive was before.
    pub report: ArchiveReport,
}

/// Says what [`rewrite`] would do to a file, and why it would do no more.
pub fn analyze(path: &Path, options: Options) -> Result<ArchiveReport, Error> {
    let read = || Ok(Contents::read(File::open(path)?, options)?.report);
    read().map_err(|e: Error| e.within(path.display()))
}

/// Writes the canonical form of the archive `from` to `to`, which may be the same file; with a certificate if the
/// checker was asked for.
pub fn rewrite(from: &Path, to: &Path, options: Options) -> Result<Rewritten, Error> {
    rewrite_file(from, to, options).map_err(|e| e.within(from.display()))
}

fn rewrite_file(from: &Path, to: &Path, options: Options) -> Result<Rewritten, Error> {
    let file = File::open(from)?;
    // A link stays a link: it is the file behind it that is replaced.
    let place = fs::canonicalize(to).unwrap_or_else(|_| to.into());
    let permissions = fs::metadata(&place).or_else(|_| file.metadata())?.permissions();
    let is_in_place = fs::canonicalize(from)? == place;
    let contents = Contents::read(file, options)?;
    let done = |action, certificate, report| Rewritten { action, certificate, report };
    let Some(archive) = &contents.archive else { return Ok(done(Action::Foreign, None, contents.report)) };
    let action = match (contents.changes.is_empty(), is_in_place) {
        (true, true) => Action::Untouched,
        (true, false) => Action::Copied,
        (false, _) => Action::Rewritten,
    };
    let mut certificate = None;
    if action == Action::Untouched {
        if options.check || options.embed {
            certificate = Some(certify(archive, archive, options.form)?);
        }
        return Ok(done(action, certificate, contents.report));
    }
    atomic::replace(&place, permissions, |out| {
        if action == Action::Copied {
            out.append(archive.source(), 0, archive.source().size()?)?;
        } else {
            contents.write(out)?;
            if options.verify {
                contents.verify(out.try_clone()?, options)?;
            }
        }
        if options.check || options.embed {
            let made = certify(archive, &Archive::open(out.try_clone()?)?, options.form)?;
            let name = check::archive::certificate_name(archive);
            // An archive that holds one already keeps it: it is about the program that this one was made of.
            if options.embed && !archive.entries().iter().any(|e| archive.name(e) == name) {
                let text = serde_json::to_vec(&made).map_err(|e| Fault::Internal.at(e))?;
                zip::append(out, &name, &text)?;
            }
            certificate = Some(made);
        }
        Ok(())
    })?;
    Ok(done(action, certificate, contents.report))
}

/// Has the independent checker compare two archives; an objection is our own mistake.
fn certify<S: Source, R: Source>(old: &Archive<S>, new: &Archive<R>, form: Form) -> Result<Certificate, Error> {
    let form = match form {
        Form::Portable => check::archive::Form::Portable,
        Form::Minimal => check::archive::Form::Minimal,
    };
    let verdicts = check::archive::compare(old, new, form)?;
    match verdicts.iter().find_map(|v| Some((v, v.verdict.objections.first()?))) {
        Some((v, objection)) => Err(Fault::Internal.at(format_args!("{}: {}", v.model, objection.message))),
        None => Ok(check::archive::certificate(&verdicts, form)),
    }
}

/// A file, and what is to be done about it.
#[derive(Debug)]
pub struct Contents<S> {
    /// What the file is and what it needs.
    pub report: ArchiveReport,
    /// None for a file without exported programs.
    archive: Option<Archive<S>>,
    changes: Vec<Change>,
}

/// The edits of one model's graph.
#[derive(Debug)]
struct Change {
    /// The entry of the graph, by its position in the directory.
    entry: usize,
    splices: Vec<Splice>,
    copies_after: usize,
    /// The text, where there is one model: with several it is read again, so that only one is held.
    text: Option<String>,
}

impl<S: Source> Contents<S> {
    /// Reads and plans.
    pub fn read(source: S, options: Options) -> Result<Self, Error> {
        let (kind, archive) = if Archive::is_zip(&source)? {
            let archive = Archive::open(source)?;
            (sniff::zip_kind(&archive), Some(archive))
        } else {
            (sniff::bare_kind(&source)?, None)
        };
        let mut contents = Contents {
            report: ArchiveReport {
                kind: kind.as_str(),
                summary: kind.sentence(),
                has_compiled_models: archive.as_ref().is_some_and(sniff::has_compiled_models),
                models: Vec::new(),
            },
            archive: archive.filter(|_| kind == Kind::ExportedProgram),
            changes: Vec::new(),
        };
        if let Some(archive) = &contents.archive {
            if options.verify {
                archive.verify()?;
            }
            let models: Vec<_> = sniff::models(archive).collect();
            let is_single = models.len() == 1;
            for (entry, name) in models {
                let (report, change) = plan_model(archive, entry, name, is_single, options.form)?;
                contents.report.models.push(report);
                contents.changes.extend(change);
            }
        }
        Ok(contents)
    }

    /// Whether a rewrite would change something.
    #[must_use]
    pub fn needs_rewrite(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Writes the archive in canonical form.
    pub fn write<W: Output<S>>(&self, out: &mut W) -> Result<(), Error> {
        let Some(archive) = &self.archive else { return Ok(()) };
        let edited = |entry| {
            // Entries and changes are in the order of the directory.
            let Ok(i) = self.changes.binary_search_by_key(&entry, |c| c.entry) else { return Ok(None) };
            let change = &self.changes[i];
            let text = match &change.text {
                Some(text) => Cow::Borrowed(text.as_str()),
                None => Cow::Owned(read_graph(archive, entry)?),
            };
            Edited::new(text, &change.splices).map(Some)
        };
        zip::write(archive, edited, out)
    }

    /// Checks a result: every checksum, and that each model needs nothing more.
    pub fn verify<R: Source>(&self, result: R, options: Options) -> Result<(), Error> {
        let archive = Archive::open(result)?;
        archive.verify()?;
        for change in &self.changes {
            model::check(&read_graph(&archive, change.entry)?, options.form, change.copies_after)?;
        }
        Ok(())
    }
}

/// Plans one model; its edits, if it needs any.
fn plan_model<S: Source>(
    archive: &Archive<S>,
    entry: usize,
    name: String,
    is_single: bool,
    form: Form,
) -> Result<(ModelReport, Option<Change>), Error> {
    let text = read_graph(archive, entry)?;
    let model = model::read(&text, form).map_err(|e| e.within(archive.shown(&archive.entries()[entry])))?;
    let report = ModelReport {
        model: name,
        graph_size: text.len() as u64,
        copies_before: model.copies_before,
        copies_after: model.copies_after,
        report: model.report,
    };
    let change =
        Change { entry, splices: model.splices, copies_after: model.copies_after, text: is_single.then_some(text) };
    Ok((report, Some(change).filter(|c| !c.splices.is_empty())))
}

/// The text of a graph.
fn read_graph<S: Source>(archive: &Archive<S>, entry: usize) -> Result<String, Error> {
    let entry = &archive.entries()[entry];
    let bytes = archive.read(entry, MAX_GRAPH)?;
    String::from_utf8(bytes).map_err(|_| Fault::NotUtf8.at(archive.shown(entry)))
}
