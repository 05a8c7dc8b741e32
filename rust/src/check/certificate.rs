//! Certificates: what was collapsed in an archive, and why that was right, for others to replay.
//!
//! A certificate names both programs by the hashes of their JSON and lists each copy that is gone: what it copied, what its readers
//! read instead, and the type that the two have in common. Then come the mutations whose value is read off the storage
//! of another target, and how that is resolved. It is read off the two programs, not off the plan, so whoever has the
//! archives can make it again; equal certificates prove the claims.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::check::archive::Form;
use crate::check::consumer::mutations;
use crate::check::machine::{World, run};
use crate::check::program::{Arg, Case, Graph, Op, Results, Role, Text};
use crate::check::storage::inputs;
use crate::check::terms::Arena;
use crate::check::text::type_text;
use crate::check::types::Classes;
use crate::error::Error;

/// Version of the JSON form.
pub const SCHEMA_VERSION: u32 = 1;

/// What was done to an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The form of the result.
    pub form: String,
    /// Each program of the archive.
    pub models: Vec<ModelCertificate>,
}

/// What was done to one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCertificate {
    /// Its name.
    pub model: String,
    /// SHA-256 of its JSON before.
    pub before: String,
    /// The same afterwards.
    pub after: String,
    /// The copies that are gone.
    pub collapsed: Vec<Collapsed>,
    /// The copies that are new.
    pub added: Vec<String>,
    /// Values that may live in the storage of another target.
    pub hazards: Vec<Hazard>,
}

/// A copy that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collapsed {
    /// Its name.
    pub node: String,
    /// The body of control flow that it is in, as the call and its argument; empty for the program itself.
    pub graph: String,
    /// What it copied.
    pub source: String,
    /// What its readers read now.
    pub reads: String,
    /// Element type, device, sizes, strides and the rest of the copy.
    pub copy_type: String,
    /// The same of what is read instead; it is equal.
    pub read_type: String,
}

/// A value that may live in the storage of another target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hazard {
    /// The target that receives the value.
    pub target: String,
    /// The target in whose storage it may live.
    pub reads: String,
    /// "order" where the value is written before that storage is overwritten, "parallel" where the consumer sees to it.
    pub resolved: String,
}

impl Form {
    /// The form's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Form::Portable => "portable",
            Form::Minimal => "minimal",
        }
    }
}

/// The SHA-256 of a graph's JSON, as the archive holds it.
#[must_use]
pub fn hash(text: &str) -> String {
    Sha256::digest(text).iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The certificate of a model; both programs as JSON, and as a case.
pub fn certify(model: &str, before: &str, after: &str, case: &Case, form: Form) -> Result<ModelCertificate, Error> {
    let (mut collapsed, mut added) = (Vec::new(), Vec::new());
    let mut maker = Maker { case, collapsed: &mut collapsed, added: &mut added };
    maker.graph(&case.before, &case.after, "");
    Ok(ModelCertificate {
        model: model.to_owned(),
        before: hash(before),
        after: hash(after),
        collapsed,
        added,
        hazards: hazards(case, form)?,
    })
}

struct Maker<'c> {
    case: &'c Case,
    collapsed: &'c mut Vec<Collapsed>,
    added: &'c mut Vec<String>,
}

impl Maker<'_> {
    fn text(&self, text: Text) -> &str {
        self.case.texts.get(text)
    }

    fn graph(&mut self, before: &Graph, after: &Graph, place: &str) {
        let is_copy = |op: Op| matches!(op, Op::Copy);
        let names = |g: &Graph| g.nodes.iter().map(|n| n.name).collect::<HashSet<Text>>();
        let (old, new) = (names(before), names(after));
        for node in before.nodes.iter().filter(|n| is_copy(n.op) && !new.contains(&n.name)) {
            let &[Arg::Value(_), Arg::Value(source)] = &node.args[..] else { continue };
            let mut reads = source;
            while let (Op::Copy, false, &[_, Arg::Value(deeper)]) =
                (before.nodes[reads].op, new.contains(&before.nodes[reads].name), &before.nodes[reads].args[..])
            {
                reads = deeper;
            }
            let type_of = |n: usize| match before.nodes[n].results {
                Results::One(number) => type_text(self.case, &self.case.types[number]),
                Results::Many(_) => "several values".to_owned(),
            };
            let copy_type = match node.results {
                Results::One(number) => type_text(self.case, &self.case.types[number]),
                Results::Many(_) => continue,
            };
            self.collapsed.push(Collapsed {
                node: self.text(node.name).to_owned(),
                graph: place.to_owned(),
                source: self.text(before.nodes[source].name).to_owned(),
                reads: self.text(before.nodes[reads].name).to_owned(),
                copy_type,
                read_type: type_of(reads),
            });
        }
        for node in after.nodes.iter().filter(|n| is_copy(n.op) && !old.contains(&n.name)) {
            self.added.push(format!("{place}{}", self.text(node.name)));
        }
        let by_name: HashMap<Text, usize> = after.nodes.iter().enumerate().map(|(i, n)| (n.name, i)).collect();
        for node in &before.nodes {
            let Some(&same) = by_name.get(&node.name) else { continue };
            for (i, arguments) in node.args.iter().zip(&after.nodes[same].args).enumerate() {
                if let (Arg::Body(old), Arg::Body(new)) = arguments {
                    let place = format!("{place}{}/{i}/", self.text(node.name));
                    self.graph(old, new, &place);
                }
            }
        }
    }
}

fn hazards(case: &Case, form: Form) -> Result<Vec<Hazard>, Error> {
    let classes = Classes::new(&case.types, &case.equal)?;
    let mut world = World { case, classes, arena: Arena::default(), retyped: Vec::new() };
    let run = run(&mut world, &case.after);
    let mutations = mutations(&case.after);
    let name = |output: usize| match case.after.outputs[output].role {
        Role::Mutation(kind, target) => format!("{} {}", case.texts.get(kind), case.texts.get(target)),
        _ => String::new(),
    };
    let writer_of: HashMap<usize, usize> = mutations.iter().map(|m| (m.input, m.output)).collect();
    let mut found = Vec::new();
    for m in &mutations {
        let value = run.of_node[m.node];
        for input in inputs(run.heap.storages(), run.heap.get(value).storage) {
            let Some(&writer) = writer_of.get(&input) else { continue };
            if run.heap.identity(value) == run.inputs[m.input] || writer == m.output {
                continue;
            }
            let resolved = if form == Form::Portable { "order" } else { "parallel" };
            found.push(Hazard { target: name(m.output), reads: name(writer), resolved: resolved.to_owned() });
        }
    }
    Ok(found)
}
