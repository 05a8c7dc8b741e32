//! Archives and entries over 4 GiB, in the layout of torch's writer, from files of zeros that are never made.

#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::io::{self, Read, Write};

use mutcanon::pt2::zip::{Archive, Body, Output, Source, write};

/// A file by what is not zero in it.
#[derive(Default)]
struct Sparse {
    len: u64,
    parts: Vec<(u64, Vec<u8>)>,
}

impl Sparse {
    fn skip(&mut self, len: u64) {
        self.len += len;
    }
}

impl Write for Sparse {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.parts.push((self.len, bytes.to_vec()));
        self.skip(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct SparseRange<'a> {
    of: &'a Sparse,
    at: u64,
    end: u64,
}

impl Read for SparseRange<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = (self.end - self.at).min(buffer.len() as u64) as usize;
        buffer[..n].fill(0);
        for (start, part) in &self.of.parts {
            for (i, byte) in part.iter().enumerate() {
                if let Some(place) = (start + i as u64).checked_sub(self.at).filter(|&p| p < n as u64) {
                    buffer[place as usize] = *byte;
                }
            }
        }
        self.at += n as u64;
        Ok(n)
    }
}

impl Source for Sparse {
    type Range<'a> = SparseRange<'a>;

    fn size(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn range(&self, offset: u64, len: u64) -> io::Result<SparseRange<'_>> {
        let end = offset.saturating_add(len).min(self.len);
        Ok(SparseRange { of: self, at: offset.min(end), end })
    }
}

impl Output<Sparse> for Sparse {
    fn append(&mut self, source: &Sparse, offset: u64, len: u64) -> io::Result<()> {
        for (start, part) in &source.parts {
            let end = start + part.len() as u64;
            let (from, to) = (offset.max(*start), end.min(offset + len));
            if from < to {
                let piece = &part[(from - start) as usize..(to - start) as usize];
                self.parts.push((self.len + from - offset, piece.to_vec()));
            }
        }
        self.skip(len);
        Ok(())
    }
}

#[derive(Clone)]
enum Contents {
    Zeros(u64),
    Text(&'static [u8]),
}

const MAX: u64 = u32::MAX as u64;
const CRC_OF_ZEROS: u32 = 0x1234_5678;

/// An archive as torch writes it: a 64-bit field with what does not fit, before the padding, and a longer descriptor.
fn archive(files: &[(&str, Contents)]) -> Sparse {
    let mut out = Sparse::default();
    let mut directory = Vec::new();
    for (name, contents) in files {
        let header = out.len;
        let (size, crc) = match contents {
            Contents::Zeros(n) => (*n, CRC_OF_ZEROS),
            Contents::Text(text) => (text.len() as u64, crc32fast::hash(text)),
        };
        let is_wide = size.max(header) >= MAX;
        let mut wide = Vec::new();
        if is_wide {
            let values: Vec<u8> =
                [size, size, header].iter().filter(|&&v| v >= MAX).flat_map(|v| v.to_le_bytes()).collect();
            wide.extend([1, 0]);
            wide.extend((values.len() as u16).to_le_bytes());
            wide.extend(values);
        }
        let start = header + 30 + (name.len() + wide.len() + 4) as u64;
        let padding = (start.next_multiple_of(64) - start) as u16;
        let mut local = b"PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0".to_vec();
        local.extend([0; 12]);
        local.extend((name.len() as u16).to_le_bytes());
        local.extend((wide.len() as u16 + 4 + padding).to_le_bytes());
        local.extend(name.as_bytes());
        local.extend(&wide);
        local.extend(b"FB");
        local.extend(padding.to_le_bytes());
        local.extend(vec![b'Z'; padding.into()]);
        out.write_all(&local).unwrap();
        match contents {
            Contents::Zeros(n) => out.skip(*n),
            Contents::Text(text) => out.write_all(text).unwrap(),
        }
        let mut descriptor = b"PK\x07\x08".to_vec();
        descriptor.extend(crc.to_le_bytes());
        for _ in 0..2 {
            descriptor.extend(&size.to_le_bytes()[..if is_wide { 8 } else { 4 }]);
        }
        out.write_all(&descriptor).unwrap();
        directory.extend(b"PK\x01\x02\0\0\0\0\x08\x08\0\0\0\0\0\0");
        directory.extend(crc.to_le_bytes());
        for _ in 0..2 {
            directory.extend((size.min(MAX) as u32).to_le_bytes());
        }
        directory.extend((name.len() as u16).to_le_bytes());
        directory.extend((wide.len() as u16).to_le_bytes());
        directory.extend([0; 10]);
        directory.extend((header.min(MAX) as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        directory.extend(wide);
    }
    let (start, size, count) = (out.len, directory.len() as u64, files.len() as u64);
    let mut end = directory;
    end.extend(b"PK\x06\x06");
    end.extend(44u64.to_le_bytes());
    end.extend([0x1e, 3, 0x2d, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for value in [count, count, size, start] {
        end.extend(value.to_le_bytes());
    }
    end.extend(b"PK\x06\x07\0\0\0\0");
    end.extend((start + size).to_le_bytes());
    end.extend(b"\x01\0\0\0PK\x05\x06\0\0\0\0");
    for _ in 0..2 {
        end.extend((count as u16).to_le_bytes());
    }
    end.extend((size as u32).to_le_bytes());
    end.extend((start.min(MAX) as u32).to_le_bytes());
    end.extend([0, 0]);
    out.write_all(&end).unwrap();
    out
}

const MODEL: &str = "m/models/model.json";
const SHORT: &[u8] = b"{}";
const LONG: &[u8] = b"{\"more\": \"than there was, and longer than an alignment, so that all moves\"}";

/// Whole files are compared by what is not zero, and where.
fn assert_same(a: &Sparse, b: &Sparse) {
    assert_eq!(a.len, b.len);
    let spread = |s: &Sparse| {
        let parts = s.parts.iter().flat_map(|(at, part)| part.iter().zip(*at..).map(|(&byte, at)| (at, byte)));
        parts.filter(|(_, byte)| *byte != 0).collect::<Vec<_>>()
    };
    assert!(spread(a) == spread(b));
}

struct Text(&'static [u8]);

impl Body for Text {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
    fn crc(&self) -> u32 {
        crc32fast::hash(self.0)
    }
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.0)
    }
}

fn edited(source: Sparse, text: &'static [u8]) -> Sparse {
    let archive = Archive::open(source).unwrap();
    let mut out = Sparse::default();
    let is_model = |i: usize| archive.name(&archive.entries()[i]) == MODEL.as_bytes();
    write(&archive, |i| Ok(is_model(i).then_some(Text(text))), &mut out).unwrap();
    out
}

#[test]
fn wherever_4_gib_are_passed_the_layout_is_torchs() {
    use Contents::{Text, Zeros};
    let gib = 1 << 30;
    for (before, behind) in [(5 * gib, 10), (3 * gib, 5 * gib), (10, 5 * gib), (MAX - 1, 7), (MAX, 7), (MAX + 1, 7)] {
        let with = |text| {
            archive(&[
                ("m/data/weights/weight_0", Zeros(before)),
                ("m/data/weights/weight_1", Zeros(2 * gib)),
                (MODEL, Text(text)),
                ("m/data/constants/tensor_0", Zeros(behind)),
                ("m/archive_format", Text(b"pt2")),
            ])
        };
        let opened = Archive::open(with(SHORT)).unwrap();
        let [first, _, model, behind_it, last] = opened.entries() else { panic!("entries") };
        assert_eq!([first.size(), behind_it.size(), last.size()], [before, behind, 3]);
        assert_eq!(opened.read(model, 100).unwrap(), SHORT);
        assert_same(&edited(with(SHORT), SHORT), &with(SHORT));
        assert_same(&edited(with(SHORT), LONG), &with(LONG));
        assert_same(&edited(with(LONG), SHORT), &with(SHORT));
    }
}

#[test]
fn entries_that_an_edit_moves_over_4_gib_and_back_change_their_form() {
    use Contents::{Text, Zeros};
    for before in (MAX - 700..MAX + 100).step_by(24) {
        let with = |text| {
            let behind = [("m/x", Text(b"x")), ("m/y", Text(b"y"))];
            archive(&[&[("m/w", Zeros(before)), (MODEL, Text(text))][..], &behind].concat())
        };
        assert_same(&edited(with(SHORT), LONG), &with(LONG));
        assert_same(&edited(with(LONG), SHORT), &with(SHORT));
    }
}
