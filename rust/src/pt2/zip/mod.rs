//! A zip reader and writer for archives of weights.
//!
//! We never unpack: an entry is a range of bytes, and rewriting an archive moves ranges. That is why this is not a zip
//! library. It keeps what torch's writer does and strict libraries dislike or lose: data that starts at multiples of
//! 64 (an `FB` extra field pads it), dates of the year zero, data descriptors, a zip64 end record in every file, names
//! of any kind. What follows an edited entry is laid out by the rules of torch's writer, so that an archive of torch's
//! in which nothing changed comes out as it was, byte for byte.
//!
//! Nothing in a file is trusted: sizes and offsets are checked before use, and memory is bounded by the directory.

mod append;
mod output;
mod read;
mod write;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Take};

pub use append::append;
pub use output::Output;
pub use read::{Archive, Entry};
pub use write::{Body, write};

/// Something with bytes at positions. A file, so that the kernel can copy ranges; bytes in tests and fuzzing.
pub trait Source {
    /// Reads one range.
    type Range<'a>: Read
    where
        Self: 'a;

    /// The number of bytes.
    fn size(&self) -> io::Result<u64>;

    /// A reader of `len` bytes from `offset`, or of fewer where the source ends. It ends the life of earlier readers.
    fn range(&self, offset: u64, len: u64) -> io::Result<Self::Range<'_>>;
}

impl Source for File {
    type Range<'a> = Take<&'a File>;

    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn range(&self, offset: u64, len: u64) -> io::Result<Self::Range<'_>> {
        let mut file = self;
        file.seek(SeekFrom::Start(offset))?;
        Ok(file.take(len))
    }
}

impl Source for Vec<u8> {
    type Range<'a> = &'a [u8];

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn range(&self, offset: u64, len: u64) -> io::Result<Self::Range<'_>> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let rest = &self[start..];
        Ok(&rest[..usize::try_from(len).unwrap_or(usize::MAX).min(rest.len())])
    }
}

const LOCAL: [u8; 4] = *b"PK\x03\x04";
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const DESCRIPTOR: [u8; 4] = *b"PK\x07\x08";
const END: [u8; 4] = *b"PK\x05\x06";
const END64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR64: [u8; 4] = *b"PK\x06\x07";

const LOCAL_SIZE: usize = 30;
const CENTRAL_SIZE: usize = 46;
const END_SIZE: usize = 22;
const END64_SIZE: usize = 56;
const LOCATOR64_SIZE: usize = 20;

/// A 32-bit field with this value, or a 16-bit field with the other, refers to the zip64 fields.
const MAX32: u64 = u32::MAX as u64;
const MAX16: u64 = u16::MAX as u64;

/// Flag bits of an entry.
const ENCRYPTED: u16 = 1;
const HAS_DESCRIPTOR: u16 = 1 << 3;

/// Extra fields: the 64-bit sizes and offset, and torch's padding.
const EXTRA_ZIP64: u16 = 1;
const EXTRA_PADDING: u16 = u16::from_le_bytes(*b"FB");

/// The little-endian fields at fixed places of a record whose length was checked when it was read.
fn u16_at(record: &[u8], at: usize) -> u16 {
    record.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

fn u32_at(record: &[u8], at: usize) -> u64 {
    u64::from(u16_at(record, at)) | u64::from(u16_at(record, at + 2)) << 16
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u32_at(record, at) | u32_at(record, at + 4) << 32
}

/// The extra fields of an entry: identifiers and whole fields, header included. A malformed rest is one field `None`.
fn extra_fields(mut extra: &[u8]) -> impl Iterator<Item = (Option<u16>, &[u8])> {
    std::iter::from_fn(move || {
        if extra.is_empty() {
            return None;
        }
        let len = 4 + usize::from(u16_at(extra, 2));
        let Some((field, rest)) = extra.split_at_checked(len).filter(|_| extra.len() >= 4) else {
            return Some((None, std::mem::take(&mut extra)));
        };
        extra = rest;
        Some((Some(u16_at(field, 0)), field))
    })
}
