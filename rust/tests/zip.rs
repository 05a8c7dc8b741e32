//! The zip reader and writer: what they keep, and what they refuse.
//!
//! The archives are made here by hand, in the layout of torch's writer, so that each can be spoilt in one place.

#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::fs::File as Disk;
use std::io::{self, Read, Seek, Write};
use std::sync::atomic::{AtomicU32, Ordering};

use mutcanon::pt2::zip::{Archive, Body, write};

/// One entry to be written, as torch writes it.
struct File {
    name: String,
    data: Vec<u8>,
}

fn file(name: &str, data: &[u8]) -> File {
    File { name: name.into(), data: data.into() }
}

/// Positions of the parts of an archive, for spoiling them.
struct Zip {
    bytes: Vec<u8>,
    headers: Vec<usize>,
    records: Vec<usize>,
    directory: usize,
    end64: usize,
    end: usize,
}

/// The layout of torch's writer: aligned contents, descriptors, a zip64 end record.
fn zip(files: &[File]) -> Zip {
    let mut out = Vec::new();
    let mut headers = Vec::new();
    for f in files {
        headers.push(out.len());
        out.extend(b"PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0");
        out.extend([0; 12]);
        out.extend((f.name.len() as u16).to_le_bytes());
        let unpadded = out.len() + 2 + f.name.len() + 4;
        let padding = unpadded.next_multiple_of(64) - unpadded;
        out.extend((padding as u16 + 4).to_le_bytes());
        out.extend(f.name.as_bytes());
        out.extend(b"FB");
        out.extend((padding as u16).to_le_bytes());
        out.extend(vec![b'Z'; padding]);
        out.extend(&f.data);
        out.extend(b"PK\x07\x08");
        out.extend(crc32fast::hash(&f.data).to_le_bytes());
        for _ in 0..2 {
            out.extend((f.data.len() as u32).to_le_bytes());
        }
    }
    let directory = out.len();
    let mut records = Vec::new();
    for (f, header) in files.iter().zip(&headers) {
        records.push(out.len());
        out.extend(b"PK\x01\x02\0\0\0\0\x08\x08\0\0\0\0\0\0");
        out.extend(crc32fast::hash(&f.data).to_le_bytes());
        for _ in 0..2 {
            out.extend((f.data.len() as u32).to_le_bytes());
        }
        out.extend((f.name.len() as u16).to_le_bytes());
        out.extend([0; 12]);
        out.extend((*header as u32).to_le_bytes());
        out.extend(f.name.as_bytes());
    }
    let end64 = out.len();
    let count = files.len() as u64;
    out.extend(b"PK\x06\x06");
    out.extend(44u64.to_le_bytes());
    out.extend([0x1e, 3, 0x2d, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for value in [count, count, (end64 - directory) as u64, directory as u64] {
        out.extend(value.to_le_bytes());
    }
    out.extend(b"PK\x06\x07\0\0\0\0");
    out.extend((end64 as u64).to_le_bytes());
    out.extend(1u32.to_le_bytes());
    let end = out.len();
    out.extend(b"PK\x05\x06\0\0\0\0");
    for _ in 0..2 {
        out.extend((count as u16).to_le_bytes());
    }
    out.extend(((end64 - directory) as u32).to_le_bytes());
    out.extend((directory as u32).to_le_bytes());
    out.extend([0, 0]);
    Zip { bytes: out, headers, records, directory, end64, end }
}

fn sample() -> Vec<File> {
    vec![
        file("m/data/weights/weight_0", &[7; 300]),
        file("m/models/model.json", b"{}"),
        file("m/data/sample_inputs/model.pt", b""),
        file("m/archive_format", b"pt2"),
    ]
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

struct Text(Vec<u8>);

impl Body for Text {
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

fn replace(bytes: &[u8], entry: usize, text: &[u8]) -> Vec<u8> {
    let archive = Archive::open(bytes.to_vec()).unwrap();
    let mut out = Vec::new();
    write(&archive, |i| Ok((i == entry).then(|| Text(text.to_vec()))), &mut out).unwrap();
    out
}

#[test]
fn reads_what_torch_writes() {
    let files = sample();
    let archive = Archive::open(zip(&files).bytes).unwrap();
    archive.verify().unwrap();
    for (entry, f) in archive.entries().iter().zip(&files) {
        assert_eq!(archive.name(entry), f.name.as_bytes());
        assert_eq!(archive.read(entry, 1 << 20).unwrap(), f.data);
    }
}

#[test]
fn unchanged_comes_out_as_it_was() {
    let bytes = zip(&sample()).bytes;
    let archive = Archive::open(bytes.clone()).unwrap();
    let mut out = Vec::new();
    write(&archive, |_| Ok(None::<Text>), &mut out).unwrap();
    assert!(out == bytes);
}

#[test]
fn an_edited_entry_is_laid_out_by_torchs_rules() {
    for len in [0, 1, 63, 64, 65, 1000, 100_000] {
        let text = vec![b'x'; len];
        let mut files = sample();
        let edited = replace(&zip(&files).bytes, 1, &text);
        files[1].data.clone_from(&text);
        assert!(edited == zip(&files).bytes, "{len}");
        assert!(replace(&edited, 1, b"{}") == zip(&sample()).bytes, "{len}");
    }
}

#[test]
fn the_order_of_directory_and_contents_is_kept() {
    let mut z = zip(&sample());
    // Swap the first two directory records; they have different lengths.
    let swapped = [z.records[1]..z.records[2], z.records[0]..z.records[1], z.records[2]..z.end64].map(|r| &z.bytes[r]);
    let directory = swapped.concat();
    put(&mut z.bytes, z.directory, &directory);
    let edited = Archive::open(replace(&z.bytes, 0, b"{\"longer\": 1}")).unwrap();
    let names: Vec<_> = edited.entries().iter().map(|e| edited.shown(e).into_owned()).collect();
    assert_eq!(names[..2], ["m/models/model.json", "m/data/weights/weight_0"]);
    assert_eq!(edited.read(&edited.entries()[1], 1000).unwrap(), [7; 300]);
    edited.verify().unwrap();
}

#[test]
fn foreign_extra_fields_and_comments_survive() {
    let mut z = zip(&sample());
    // The padding of the last entry becomes a field of another program, with padding behind it.
    let at = z.headers[3] + 30 + "m/archive_format".len();
    put(&mut z.bytes, at, b"UT\x05\0hello");
    let padding = u16::from_le_bytes([z.bytes[z.headers[3] + 28], z.bytes[z.headers[3] + 29]]) - 9 - 4;
    put(&mut z.bytes, at + 9, b"FB");
    put(&mut z.bytes, at + 11, &padding.to_le_bytes());
    put(&mut z.bytes, z.end + 20, &3u16.to_le_bytes());
    z.bytes.extend(b"bye");
    let edited = replace(&z.bytes, 1, b"{\"a\": 1}");
    assert!(edited.ends_with(b"bye"));
    assert_eq!(edited.windows(9).filter(|w| w == b"UT\x05\0hello").count(), 1);
    Archive::open(edited).unwrap().verify().unwrap();
}

#[test]
fn junk_behind_the_archive_is_tolerated_as_torch_does() {
    let mut bytes = zip(&sample()).bytes;
    bytes.extend(b"junk");
    assert_eq!(Archive::open(bytes).unwrap().entries().len(), 4);
}

/// A new file, which is gone from its folder at once.
fn unnamed(contents: &[u8]) -> Disk {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("mutcanon-zip-{}-{number}", std::process::id()));
    let mut file = Disk::options().read(true).write(true).create_new(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all(contents).unwrap();
    file
}

#[test]
fn between_files_the_same_is_written() {
    // Longer than what is copied in one piece, before and behind what changes.
    let weights: Vec<u8> = (0..20 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut files = sample();
    files[0].data = weights[..9 << 20].into();
    files[2].data = weights;
    let bytes = zip(&files).bytes;
    let (source, mut out) = (unnamed(&bytes), unnamed(b""));
    let archive = Archive::open(source).unwrap();
    write(&archive, |i| Ok((i == 1).then(|| Text(b"{\"longer\": 1}".to_vec()))), &mut out).unwrap();
    let mut written = Vec::new();
    out.rewind().unwrap();
    out.read_to_end(&mut written).unwrap();
    assert!(written == replace(&bytes, 1, b"{\"longer\": 1}"));
}

#[test]
fn a_source_that_shrinks_while_it_is_copied_is_noticed() {
    let mut files = sample();
    files[0].data = vec![7; 9 << 20];
    let source = unnamed(&zip(&files).bytes);
    let archive = Archive::open(source.try_clone().unwrap()).unwrap();
    source.set_len(1 << 20).unwrap();
    let error = write(&archive, |_| Ok(None::<Text>), &mut unnamed(b"")).unwrap_err();
    assert_eq!(error.code(), "truncated");
}

/// A way to spoil an archive, and the code with which it is refused.
type Attack = (&'static str, &'static str, fn(&mut Zip));

const ATTACKS: &[Attack] = &[
    ("no directory", "truncated", |z| z.bytes.truncate(z.directory)),
    ("cut in the end record", "truncated", |z| z.bytes.truncate(z.end + 10)),
    ("a beginning is missing", "bad_zip", |z| drop(z.bytes.drain(..10))),
    ("bytes before the archive", "bad_zip", |z| drop(z.bytes.splice(0..0, *b"#!/bin/sh"))),
    ("directory beyond the end", "bad_zip", |z| {
        put(&mut z.bytes, z.end64 + 48, &u64::MAX.to_le_bytes());
        put(&mut z.bytes, z.end + 16, &[0xff; 4]);
    }),
    ("a directory of 2^60 bytes", "bad_zip", |z| {
        put(&mut z.bytes, z.end64 + 40, &(1u64 << 60).to_le_bytes());
        put(&mut z.bytes, z.end + 12, &[0xff; 4]);
    }),
    ("end records that disagree", "bad_zip", |z| put(&mut z.bytes, z.end64 + 40, &10u64.to_le_bytes())),
    ("a locator to nowhere", "bad_zip", |z| put(&mut z.bytes, z.end - 12, &u64::MAX.to_le_bytes())),
    ("more entries stated than there are", "bad_zip", |z| {
        put(&mut z.bytes, z.end64 + 24, &[9]);
        put(&mut z.bytes, z.end64 + 32, &[9]);
        put(&mut z.bytes, z.end + 8, &[9, 0, 9]);
    }),
    ("two disks", "bad_zip", |z| put(&mut z.bytes, z.end + 4, &[1])),
    ("a name longer than the directory", "bad_zip", |z| put(&mut z.bytes, z.records[3] + 28, &[0xff; 2])),
    ("a record that is none", "bad_zip", |z| put(&mut z.bytes, z.records[2], b"XX")),
    ("another name in the local header", "bad_zip", |z| put(&mut z.bytes, z.headers[1] + 30, b"n")),
    ("another method in the local header", "bad_zip", |z| put(&mut z.bytes, z.headers[1] + 8, &[8])),
    ("a local header that is none", "bad_zip", |z| put(&mut z.bytes, z.headers[1], b"XX")),
    ("a local header that states another size", "false_size", |z| put(&mut z.bytes, z.headers[0] + 18, &[9])),
    ("two entries at one place", "overlapping_entries", |z| {
        let first = z.bytes[z.records[0] + 42..z.records[0] + 46].to_vec();
        put(&mut z.bytes, z.records[1] + 42, &first);
    }),
    ("an entry inside another", "overlapping_entries", |z| {
        let inner = zip(&[file("m/models/model.json", b"{}")]).bytes;
        let at = z.headers[0] + 64 + 64;
        put(&mut z.bytes, at, &inner[..130]);
        put(&mut z.bytes, z.records[1] + 42, &(at as u32).to_le_bytes());
    }),
    ("an entry that reaches into the next", "overlapping_entries", |z| {
        put(&mut z.bytes, z.records[0] + 20, &400u32.to_le_bytes());
        put(&mut z.bytes, z.records[0] + 24, &400u32.to_le_bytes());
    }),
    ("an entry that reaches into the directory", "false_size", |z| {
        put(&mut z.bytes, z.records[3] + 20, &30u32.to_le_bytes());
        put(&mut z.bytes, z.records[3] + 24, &30u32.to_le_bytes());
    }),
    ("an entry that starts in the directory", "false_size", |z| {
        put(&mut z.bytes, z.records[1] + 42, &(z.directory as u32).to_le_bytes());
    }),
    ("an entry at 4 GiB", "false_size", |z| put(&mut z.bytes, z.records[1] + 42, &[0xff; 4])),
    ("a stored entry with two sizes", "false_size", |z| put(&mut z.bytes, z.records[0] + 24, &500u32.to_le_bytes())),
    ("an entry of 4 GiB", "false_size", |z| put(&mut z.bytes, z.records[0] + 20, &[0xff; 8])),
    ("an extra field longer than the entry", "false_size", |z| put(&mut z.bytes, z.headers[3] + 28, &[0xff; 2])),
    ("a name that leads to the parent", "unsafe_name", |z| *z = zip(&[file("m/../../.profile", b"")])),
    ("a name that leads to the parent elsewhere", "unsafe_name", |z| *z = zip(&[file("m\\..\\x", b"")])),
    ("a name from the root", "unsafe_name", |z| *z = zip(&[file("/etc/passwd", b"")])),
    ("a name of a drive", "unsafe_name", |z| *z = zip(&[file("C:x", b"")])),
    ("a name with an end in it", "unsafe_name", |z| *z = zip(&[file("m/x\0.json", b"")])),
    ("two entries of one name", "duplicate_entry", |z| {
        *z = zip(&[file("m/a", b"1"), file("m/b", b"2"), file("m/a", b"3")]);
    }),
];

#[test]
fn spoilt_archives_are_refused_with_their_code() {
    for (what, code, spoil) in ATTACKS {
        let mut z = zip(&sample());
        spoil(&mut z);
        let error = Archive::open(z.bytes).map(|_| ()).expect_err(what);
        assert_eq!(error.code(), *code, "{what}: {error}");
    }
}

#[test]
fn contents_are_checked_when_they_are_read() {
    let mut z = zip(&sample());
    let data = (z.headers[1] + 30 + "m/models/model.json".len() + 4).next_multiple_of(64);
    put(&mut z.bytes, data, b"[]");
    let archive = Archive::open(z.bytes).unwrap();
    let graph = &archive.entries()[1];
    assert_eq!(archive.read(graph, 100).unwrap_err().code(), "checksum");
    assert_eq!(archive.verify().unwrap_err().code(), "checksum");
    assert_eq!(archive.read(graph, 1).unwrap_err().code(), "too_large");
}

#[test]
fn a_compressed_entry_is_copied_but_not_read() {
    let mut z = zip(&sample());
    for place in [z.headers[1] + 8, z.records[1] + 10] {
        put(&mut z.bytes, place, &[8]);
    }
    // A bomb states a large size; nothing is made of it.
    put(&mut z.bytes, z.records[1] + 24, &0x7fff_ffffu32.to_le_bytes());
    let archive = Archive::open(z.bytes.clone()).unwrap();
    assert_eq!(archive.read(&archive.entries()[1], u64::MAX).unwrap_err().code(), "compressed_graph");
    let edited = Archive::open(replace(&z.bytes, 0, b"moved")).unwrap();
    assert_eq!(edited.entries()[1].size(), 0x7fff_ffff);
}

#[test]
fn names_that_only_look_like_a_way_out_are_kept() {
    for name in ["m/extra/a..b", "m/...", "m/x:y", "m/ü", "m/", "m//x", "m/models/a/b.json"] {
        let bytes = zip(&[file("m/models/model.json", b"{}"), file(name, b"x")]).bytes;
        let archive = Archive::open(replace(&bytes, 0, b"{\"a\": 1}")).unwrap();
        assert_eq!(archive.name(&archive.entries()[1]), name.as_bytes());
    }
}

#[test]
fn every_cut_is_refused() {
    let z = zip(&sample());
    for len in 0..z.bytes.len() {
        assert!(Archive::open(z.bytes[..len].to_vec()).is_err(), "{len}");
    }
}
