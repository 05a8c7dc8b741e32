//! An archive again, with some entries replaced.
//!
//! What lies before the first replaced entry keeps its place, and is copied as one range. What lies behind moves, and
//! is aligned anew. Entries keep their order, names, dates, flags and foreign extra fields.

use std::io::{self, Write};
use std::ops::Range;

use super::read::read;
use super::{
    Archive, DESCRIPTOR, END, END64, EXTRA_PADDING, EXTRA_ZIP64, Entry, LOCAL_SIZE, LOCATOR64, MAX32, Output, Source,
    extra_fields, u16_at,
};
use crate::error::Error;
use crate::pt2::fault::Fault;

/// torch's readers may map the contents, so they are aligned for any element type.
pub(super) const ALIGNMENT: u64 = 64;

/// New contents of an entry.
pub trait Body {
    /// Their length.
    fn size(&self) -> u64;
    /// Their checksum.
    fn crc(&self) -> u32;
    /// Writes them.
    fn write(&self, out: &mut dyn Write) -> io::Result<()>;
}

/// Writes `archive` with the contents of some entries replaced: `replaced` is asked for each entry, by its position in
/// the directory. One body at a time is held.
pub fn write<S: Source, W: Output<S>, B: Body>(
    archive: &Archive<S>,
    mut replaced: impl FnMut(usize) -> Result<Option<B>, Error>,
    out: &mut W,
) -> Result<(), Error> {
    let mut writer = Writer { archive, out, at: 0, pending: 0..0 };
    let mut placed = vec![Placed::default(); archive.entries.len()];
    for (k, &i) in archive.layout.iter().enumerate() {
        let end = archive.layout.get(k + 1).map_or(archive.directory_start, |&n| archive.entries[n].header);
        placed[i] = writer.entry(&archive.entries[i], end, replaced(i)?.as_ref())?;
    }
    writer.flush()?;
    writer.directory(&placed)
}

/// Where an entry ended up.
#[derive(Clone, Copy, Default)]
struct Placed {
    header: u64,
    size: u64,
    compressed: u64,
    crc: u32,
}

impl Placed {
    fn needs_zip64(&self) -> bool {
        self.size.max(self.compressed).max(self.header) >= MAX32
    }

    /// The 64-bit extra field: a value for each 32-bit field that is full.
    fn zip64(&self) -> Vec<u8> {
        let values = [self.size, self.compressed, self.header];
        let wide: Vec<u8> = values.iter().filter(|&&v| v >= MAX32).flat_map(|v| v.to_le_bytes()).collect();
        field(EXTRA_ZIP64, &wide)
    }
}

struct Writer<'a, S, W> {
    archive: &'a Archive<S>,
    out: &'a mut W,
    /// The position in the output, the pending range included.
    at: u64,
    /// A range of the source that goes to the same place in the output, not copied yet.
    pending: Range<u64>,
}

impl<S: Source, W: Output<S>> Writer<'_, S, W> {
    /// Writes one entry, which lies before `end` in the source.
    fn entry<B: Body>(&mut self, entry: &Entry, end: u64, body: Option<&B>) -> Result<Placed, Error> {
        let record = &self.archive.directory[entry.record.clone()];
        let crc = u32::from_le_bytes([record[16], record[17], record[18], record[19]]);
        let mut placed = Placed { header: self.at, size: entry.size, compressed: entry.compressed, crc };
        if let Some(body) = body {
            (placed.size, placed.compressed, placed.crc) = (body.size(), body.size(), body.crc());
        } else if self.at == entry.header {
            self.pending.end = end;
            self.at = end;
            return Ok(placed);
        }
        self.flush()?;
        let header = self.local_header(entry, &placed)?;
        self.put(&header)?;
        if let Some(body) = body {
            body.write(self.out)?;
        } else {
            self.out.append(&self.archive.source, entry.data, entry.compressed)?;
        }
        self.at += placed.compressed;
        if entry.has_descriptor() {
            let mut descriptor = DESCRIPTOR.to_vec();
            descriptor.extend(placed.crc.to_le_bytes());
            for size in [placed.compressed, placed.size] {
                let bytes = size.to_le_bytes();
                descriptor.extend(if placed.needs_zip64() { &bytes[..] } else { &bytes[..4] });
            }
            self.put(&descriptor)?;
        }
        // Anything pending from here on would start here.
        self.pending = self.at..self.at;
        Ok(placed)
    }

    /// The entry's local header at the present position: its own, with other sizes and another alignment.
    fn local_header(&self, entry: &Entry, placed: &Placed) -> Result<Vec<u8>, Error> {
        let mut header = read(&self.archive.source, entry.header, entry.data - entry.header)?;
        let old_extra = header.split_off(LOCAL_SIZE + self.archive.name(entry).len());
        let mut extra = if placed.needs_zip64() { placed.zip64() } else { Vec::new() };
        extra.extend(foreign_fields(&old_extra));
        if entry.is_stored() {
            let start = placed.header + (header.len() + extra.len() + 4) as u64;
            let padding = vec![b'Z'; usize::try_from(start.next_multiple_of(ALIGNMENT) - start).unwrap_or(0)];
            extra.extend(field(EXTRA_PADDING, &padding));
        }
        let extra_len = u16::try_from(extra.len()).map_err(|_| Fault::BadZip.at(self.archive.shown(entry)))?;
        header[28..30].copy_from_slice(&extra_len.to_le_bytes());
        if entry.has_descriptor() {
            header[14..26].fill(0);
        } else {
            header[14..18].copy_from_slice(&placed.crc.to_le_bytes());
            header[18..22].copy_from_slice(&narrow(placed.compressed));
            header[22..26].copy_from_slice(&narrow(placed.size));
        }
        header.extend(extra);
        Ok(header)
    }

    /// The directory and the end records.
    fn directory(mut self, placed: &[Placed]) -> Result<(), Error> {
        let mut directory = Vec::with_capacity(self.archive.directory.len());
        for (entry, placed) in self.archive.entries.iter().zip(placed) {
            let old = &self.archive.directory[entry.record.clone()];
            let [name, extra_len] = [28, 30].map(|at| usize::from(u16_at(old, at)));
            let (head, rest) = old.split_at(super::CENTRAL_SIZE + name);
            let (old_extra, comment) = rest.split_at(extra_len);
            let mut extra = if placed.needs_zip64() { placed.zip64() } else { Vec::new() };
            extra.extend(foreign_fields(old_extra));
            let extra_len = u16::try_from(extra.len()).map_err(|_| Fault::BadZip.at(self.archive.shown(entry)))?;
            let mut head = head.to_vec();
            head[16..20].copy_from_slice(&placed.crc.to_le_bytes());
            head[20..24].copy_from_slice(&narrow(placed.compressed));
            head[24..28].copy_from_slice(&narrow(placed.size));
            head[30..32].copy_from_slice(&extra_len.to_le_bytes());
            head[42..46].copy_from_slice(&narrow(placed.header));
            for part in [&head[..], &extra, comment] {
                directory.extend(part);
            }
        }
        let end = end(self.archive, directory, placed.len() as u64, self.at);
        self.put(&end)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Copies the pending range.
    fn flush(&mut self) -> Result<(), Error> {
        let Range { start, end } = self.pending;
        Ok(self.out.append(&self.archive.source, start, end - start)?)
    }
}

/// A directory of so many entries that starts at `start`, and the end records behind it.
pub(super) fn end<S: Source>(archive: &Archive<S>, directory: Vec<u8>, count: u64, start: u64) -> Vec<u8> {
    let size = directory.len() as u64;
    let mut end = directory;
    end.extend(END64);
    end.extend(44u64.to_le_bytes()); // the length of the rest of this record
    end.extend(archive.versions);
    end.extend([0; 8]); // disk numbers
    for value in [count, count, size, start] {
        end.extend(value.to_le_bytes());
    }
    end.extend(LOCATOR64);
    end.extend([0; 4]);
    end.extend((start + size).to_le_bytes());
    end.extend(1u32.to_le_bytes()); // the number of disks
    end.extend(END);
    end.extend([0; 4]);
    for _ in 0..2 {
        end.extend(narrow16(count));
    }
    end.extend(narrow(size));
    end.extend(narrow(start));
    end.extend(narrow16(archive.comment.len() as u64));
    end.extend(&archive.comment);
    end
}

/// The extra fields that are not ours to set.
fn foreign_fields(extra: &[u8]) -> impl Iterator<Item = u8> + '_ {
    extra_fields(extra)
        .filter(|(id, _)| !matches!(id, Some(EXTRA_ZIP64 | EXTRA_PADDING) | None))
        .flat_map(|(_, field)| field.iter().copied())
}

/// An extra field.
pub(super) fn field(id: u16, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).expect("our fields are shorter than an alignment");
    [&id.to_le_bytes()[..], &len.to_le_bytes(), content].concat()
}

pub(super) fn narrow(value: u64) -> [u8; 4] {
    u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes()
}

fn narrow16(value: u64) -> [u8; 2] {
    u16::try_from(value).unwrap_or(u16::MAX).to_le_bytes()
}
