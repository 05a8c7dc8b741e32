//! What a file is, told by its contents: `.pt2` is also the ending of other things, and zips have many endings.

use std::io::Read;

use super::zip::{Archive, Source};
use crate::error::Error;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A PT2 archive with exported programs; torch 2.8 and newer.
    ExportedProgram,
    /// A PT2 archive that holds compiled models only.
    CompiledModel,
    /// What `torch.export.save` wrote up to torch 2.7.
    LegacyExport,
    /// A `TorchScript` module.
    TorchScript,
    /// What `torch.save` writes, as a zip or as a bare pickle.
    Checkpoint,
    /// The record that `ExecuTorch` keeps of a lowering.
    EtRecord,
    /// An `ExecuTorch` program.
    Pte,
    /// What Git leaves in the place of a large file that was not fetched.
    LfsPointer,
    /// Another zip.
    Zip,
    /// Anything else.
    Unknown,
}

impl Kind {
    /// The kind's stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::ExportedProgram => "exported_program",
            Kind::CompiledModel => "compiled_model",
            Kind::LegacyExport => "legacy_export",
            Kind::TorchScript => "torchscript",
            Kind::Checkpoint => "checkpoint",
            Kind::EtRecord => "etrecord",
            Kind::Pte => "executorch_program",
            Kind::LfsPointer => "lfs_pointer",
            Kind::Zip => "zip",
            Kind::Unknown => "unknown",
        }
    }

    /// For people: what it is, and what can be done about it.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Kind::ExportedProgram => "an exported program",
            Kind::CompiledModel => "a compiled model (AOTInductor) without an exported program: nothing to rewrite",
            Kind::LegacyExport => {
                "an exported program of torch 2.7 or older: load and save it with a newer torch, then try again"
            }
            Kind::TorchScript => "a TorchScript module: nothing to rewrite",
            Kind::Checkpoint => "a checkpoint (torch.save): nothing to rewrite",
            Kind::EtRecord => "an ETRecord: nothing to rewrite",
            Kind::Pte => "an ExecuTorch program, which is final: rewrite the exported program, then lower it again",
            Kind::LfsPointer => "a pointer of Git LFS to a file that is not here: git lfs pull fetches it",
            Kind::Zip => "a zip file of another kind",
            Kind::Unknown => "no file of torch's",
        }
    }
}

/// What a file is that is no zip.
pub fn bare_kind<S: Source>(source: &S) -> Result<Kind, Error> {
    let mut head = Vec::new();
    source.range(0, 32)?.read_to_end(&mut head)?;
    Ok(match head.as_slice() {
        lfs if lfs.starts_with(b"version https://git-lfs.") => Kind::LfsPointer,
        // A flatbuffer starts with an offset, then names its schema.
        [_, _, _, _, b'E', b'T', ..] if head.len() >= 8 => Kind::Pte,
        // A pickle of protocol 2 and up, as torch.save wrote before zips.
        [0x80, 2..=5, ..] => Kind::Checkpoint,
        _ => Kind::Unknown,
    })
}

/// What a zip is.
#[must_use]
pub fn zip_kind<S: Source>(archive: &Archive<S>) -> Kind {
    let names: Vec<&[u8]> = archive.entries().iter().map(|e| archive.name(e)).collect();
    let at_top = |name: &[u8]| names.contains(&name);
    let root = root(archive);
    let inside = |path: &str| names.iter().any(|n| below(n, root).is_some_and(|p| p == path.as_bytes()));
    let below_folder =
        |folder: &str| names.iter().any(|n| below(n, root).is_some_and(|p| p.starts_with(folder.as_bytes())));
    if models(archive).next().is_some() {
        Kind::ExportedProgram
    } else if below_folder("data/aotinductor/") || names.iter().any(|n| n.starts_with(b"data/aotinductor/")) {
        Kind::CompiledModel
    } else if at_top(b"serialized_exported_program.json") {
        Kind::LegacyExport
    } else if at_top(b"ETRECORD_V0") {
        Kind::EtRecord
    } else if inside("constants.pkl") {
        Kind::TorchScript
    } else if inside("data.pkl") {
        Kind::Checkpoint
    } else {
        Kind::Zip
    }
}

/// The folder that holds everything, with its slash: torch takes it from the first entry.
fn root<S: Source>(archive: &Archive<S>) -> &[u8] {
    let first = archive.entries().first().map(|e| archive.name(e)).unwrap_or_default();
    let len = first.iter().position(|&b| b == b'/').map_or(0, |slash| slash + 1);
    &first[..len]
}

/// The path below the root.
fn below<'n>(name: &'n [u8], root: &[u8]) -> Option<&'n [u8]> {
    if root.is_empty() { None } else { name.strip_prefix(root) }
}

/// The exported programs of a PT2 archive: position of the entry, and name of the model.
pub fn models<S: Source>(archive: &Archive<S>) -> impl Iterator<Item = (usize, String)> + '_ {
    let root = root(archive);
    let is_pt2 = archive.entries().iter().any(|e| below(archive.name(e), root) == Some(b"archive_format"));
    archive.entries().iter().enumerate().filter(move |_| is_pt2).filter_map(move |(i, entry)| {
        let path = below(archive.name(entry), root)?;
        let name = path.strip_prefix(b"models/")?.strip_suffix(b".json")?;
        Some((i, String::from_utf8_lossy(name).into_owned()))
    })
}

/// Whether a PT2 archive also holds compiled models, which a rewrite leaves as they are.
pub fn has_compiled_models<S: Source>(archive: &Archive<S>) -> bool {
    let root = root(archive);
    archive.entries().iter().any(|e| below(archive.name(e), root).is_some_and(|p| p.starts_with(b"data/aotinductor/")))
}
