//! What must hold whatever the bytes are. Driven by libfuzzer (`fuzz_targets/`) and, with a fixed seed and no nightly
//! compiler, by `rust/tests/fuzz_corpus.rs`.

use std::borrow::Cow;
use std::io::{self, Write};

use mutcanon::Form;
use mutcanon::pt2::edit::Edited;
use mutcanon::pt2::zip::{self as archive, Archive, Body};
use mutcanon::pt2::{Contents, Options, model};

/// Any bytes as an archive: what opens is written again with the same entries, and then to the same bytes.
pub fn zip(data: &[u8]) {
    let Ok(first) = Archive::open(data.to_vec()) else { return };
    let again = written(&first, |_| None);
    let second = Archive::open(again.clone()).expect("what we write, we read");
    assert_eq!(first.entries().len(), second.entries().len());
    for (a, b) in first.entries().iter().zip(second.entries()) {
        assert_eq!((first.name(a), a.size()), (second.name(b), b.size()));
        let contents = [first.read(a, 1 << 20), second.read(b, 1 << 20)];
        assert_eq!(contents[0].as_ref().ok(), contents[1].as_ref().ok());
    }
    assert!(written(&second, |_| None) == again);
}

/// Any text as a graph: what is understood is edited to a text that is understood, and needs nothing more.
pub fn graph(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for form in [Form::Portable, Form::Minimal] {
        let Ok(model) = model::read(text, form) else { continue };
        let edited = Edited::new(Cow::Borrowed(text), &model.splices).expect("edits are apart").to_string();
        model::check(&edited, form, model.copies_after).unwrap_or_else(|e| panic!("{e}\n{edited}"));
    }
}

/// Any text as the graph of an archive that is otherwise sound, and any bytes as an archive: from end to end.
pub fn rewrite(data: &[u8]) {
    let sound = Archive::open(include_bytes!("corpus/zip/cache.pt2").to_vec()).expect("the corpus is sound");
    let with_graph = written(&sound, |name| name.ends_with(b"/models/model.json").then(|| data.to_vec()));
    for source in [with_graph, data.to_vec()] {
        let options = Options { form: Form::Portable, verify: false, check: false, embed: false };
        let Some(contents) = Contents::read(source, options).ok().filter(Contents::needs_rewrite) else { continue };
        let mut out = Vec::new();
        contents.write(&mut out).expect("what was read can be written");
        // A weight whose checksum is wrong stays so, and is no fault of ours.
        match contents.verify(out, options) {
            Err(error) if error.code() != "checksum" => panic!("{error}"),
            _ => {}
        }
    }
}

struct Bytes(Vec<u8>);

impl Body for Bytes {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
    fn crc(&self) -> u32 {
        crc32fast::hash(&self.0)
    }
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.0)
    }
}

/// The archive with other contents for some names.
fn written(archive: &Archive<Vec<u8>>, replace: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    let replaced = |i: usize| Ok(replace(archive.name(&archive.entries()[i])).map(Bytes));
    archive::write(archive, replaced, &mut out).expect("what was read can be written");
    out
}
