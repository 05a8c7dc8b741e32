//! The directory of an archive, checked against the rest of the file.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, Read};
use std::ops::Range;

use super::{
    CENTRAL, CENTRAL_SIZE, ENCRYPTED, END, END_SIZE, END64, END64_SIZE, EXTRA_ZIP64, HAS_DESCRIPTOR, LOCAL, LOCAL_SIZE,
    LOCATOR64, LOCATOR64_SIZE, MAX16, MAX32, Source, extra_fields, u16_at, u32_at, u64_at,
};
use crate::error::Error;
use crate::pt2::fault::Fault;

/// A directory of this size has millions of entries; nobody's archive does, and it would be held in memory.
const MAX_DIRECTORY: u64 = 256 << 20;

/// One file of the archive. Offsets count from the beginning of the archive.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its record in the directory.
    pub(super) record: Range<usize>,
    /// Where the local header starts.
    pub(super) header: u64,
    /// Where the contents start.
    pub(super) data: u64,
    /// The length of the contents as they are in the archive.
    pub(super) compressed: u64,
    /// The length of the contents when uncompressed.
    pub(super) size: u64,
    crc: u32,
    method: u16,
    pub(super) flags: u16,
}

impl Entry {
    /// The length of the contents when uncompressed.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the contents are in the archive as they are.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.method == 0 && self.flags & ENCRYPTED == 0
    }

    pub(super) fn has_descriptor(&self) -> bool {
        self.flags & HAS_DESCRIPTOR != 0
    }

    fn end(&self) -> u64 {
        self.data.saturating_add(self.compressed)
    }
}

/// An archive whose directory was read.
#[derive(Debug)]
pub struct Archive<S> {
    pub(super) source: S,
    pub(super) directory: Vec<u8>,
    pub(super) entries: Vec<Entry>,
    /// The entries in the order in which they lie in the file.
    pub(super) layout: Vec<usize>,
    /// Where the directory starts, and so where the last entry ends.
    pub(super) directory_start: u64,
    /// What follows the signature in the zip64 end record: the versions of its writer, extensions excluded.
    pub(super) versions: [u8; 4],
    pub(super) comment: Vec<u8>,
}

impl<S: Source> Archive<S> {
    /// Whether the source begins as a zip does. torch accepts nothing before it.
    pub fn is_zip(source: &S) -> Result<bool, Error> {
        let mut head = Vec::new();
        source.range(0, 4)?.read_to_end(&mut head)?;
        Ok(head == LOCAL || head == END)
    }

    /// The bytes of the archive.
    #[must_use]
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Reads and checks the directory.
    pub fn open(source: S) -> Result<Self, Error> {
        let truncated = || Fault::Truncated.at("the zip directory");
        let end = End::find(&source)?.ok_or_else(truncated)?;
        // In a file that was cut off, the last end record belongs to a zip that is an entry of it.
        let may_be_inner = end.end() != source.size()?;
        match Self::open_at(source, end) {
            Err(Error::Archive { .. }) if may_be_inner => Err(truncated()),
            opened => opened,
        }
    }

    fn open_at(source: S, end: End) -> Result<Self, Error> {
        let end_start = end.start;
        let place = end.resolve(&source)?;
        if place.size > MAX_DIRECTORY {
            return Err(Fault::TooLarge.at(format_args!("a zip directory of {} bytes", place.size)));
        }
        if place.start.checked_add(place.size).is_none_or(|e| e > end_start) {
            return Err(Fault::BadZip.at("the directory's position"));
        }
        let directory = read(&source, place.start, place.size)?;
        let mut archive = Archive {
            source,
            directory,
            entries: Vec::new(),
            layout: Vec::new(),
            directory_start: place.start,
            versions: place.versions,
            comment: place.comment,
        };
        archive.read_directory(place.count)?;
        archive.check_names()?;
        archive.check_places()?;
        Ok(archive)
    }

    /// The entries in directory order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The name of an entry, as it is written.
    #[must_use]
    pub fn name(&self, entry: &Entry) -> &[u8] {
        let record = &self.directory[entry.record.clone()];
        &record[CENTRAL_SIZE..CENTRAL_SIZE + usize::from(u16_at(record, 28))]
    }

    /// The name for messages.
    #[must_use]
    pub fn shown(&self, entry: &Entry) -> Cow<'_, str> {
        String::from_utf8_lossy(self.name(entry))
    }

    /// The contents of a stored entry of at most `limit` bytes, checked against its checksum.
    pub fn read(&self, entry: &Entry, limit: u64) -> Result<Vec<u8>, Error> {
        let name = self.shown(entry);
        if !entry.is_stored() {
            return Err(Fault::Compressed.at(name));
        }
        if entry.size > limit {
            return Err(Fault::TooLarge.at(format_args!("{name}: {} bytes", entry.size)));
        }
        let bytes = read(&self.source, entry.data, entry.size)?;
        if crc32fast::hash(&bytes) != entry.crc {
            return Err(Fault::Checksum.at(name));
        }
        Ok(bytes)
    }

    /// The contents of an entry as they are stored, compressed or not.
    pub fn raw(&self, entry: &Entry) -> io::Result<S::Range<'_>> {
        self.source.range(entry.data, entry.compressed)
    }

    /// Reads every stored entry and compares its checksum.
    pub fn verify(&self) -> Result<(), Error> {
        let mut buffer = vec![0; 1 << 20];
        for entry in self.entries.iter().filter(|e| e.is_stored()) {
            let mut range = self.source.range(entry.data, entry.size)?;
            let (mut crc, mut left) = (crc32fast::Hasher::new(), entry.size);
            while left > 0 {
                let n = range.read(&mut buffer)?;
                if n == 0 {
                    return Err(Fault::Truncated.at(self.shown(entry)));
                }
                crc.update(&buffer[..n]);
                left = left.saturating_sub(n as u64);
            }
            if crc.finalize() != entry.crc {
                return Err(Fault::Checksum.at(self.shown(entry)));
            }
        }
        Ok(())
    }

    fn read_directory(&mut self, count: u64) -> Result<(), Error> {
        let mut at = 0;
        while at < self.directory.len() {
            let entry = self.central_record(at)?;
            at = entry.record.end;
            self.entries.push(entry);
        }
        if self.entries.len() as u64 != count {
            let found = self.entries.len();
            return Err(Fault::BadZip.at(format_args!("a directory of {found} entries that states {count}")));
        }
        Ok(())
    }

    fn central_record(&self, at: usize) -> Result<Entry, Error> {
        let broken = || Fault::BadZip.at(format_args!("directory record {}", self.entries.len()));
        let rest = &self.directory[at..];
        if rest.len() < CENTRAL_SIZE || rest[..4] != CENTRAL {
            return Err(broken());
        }
        let [name, extra, comment] = [28, 30, 32].map(|field| usize::from(u16_at(rest, field)));
        let len = CENTRAL_SIZE + name + extra + comment;
        let extra = rest.get(CENTRAL_SIZE + name..CENTRAL_SIZE + name + extra).ok_or_else(broken)?;
        if rest.len() < len || u16_at(rest, 34) != 0 {
            return Err(broken());
        }
        let mut wide = extra_fields(extra).find(|(id, _)| *id == Some(EXTRA_ZIP64)).map_or(&[][..], |(_, f)| &f[4..]);
        // The 64-bit field has a value for each 32-bit field that is full, in this order.
        let mut widen = |narrow: u64| match wide.split_at_checked(8) {
            Some((value, rest)) if narrow == MAX32 => {
                wide = rest;
                u64_at(value, 0)
            }
            _ => narrow,
        };
        let size = widen(u32_at(rest, 24));
        let compressed = widen(u32_at(rest, 20));
        let header = widen(u32_at(rest, 42));
        Ok(Entry {
            record: at..at + len,
            header,
            data: 0,
            compressed,
            size,
            #[allow(clippy::cast_possible_truncation)] // a 32-bit field
            crc: u32_at(rest, 16) as u32,
            method: u16_at(rest, 10),
            flags: u16_at(rest, 8),
        })
    }

    fn check_names(&self) -> Result<(), Error> {
        let mut seen = HashSet::with_capacity(self.entries.len());
        for entry in &self.entries {
            let name = self.name(entry);
            if leads_out(name) {
                return Err(Fault::UnsafeName.at(self.shown(entry)));
            }
            if !seen.insert(name) {
                return Err(Fault::DuplicateEntry.at(self.shown(entry)));
            }
        }
        Ok(())
    }

    /// Finds the contents of every entry, and checks that no two entries share bytes with one another or the directory.
    fn check_places(&mut self) -> Result<(), Error> {
        let mut layout: Vec<usize> = (0..self.entries.len()).collect();
        layout.sort_by_key(|&i| self.entries[i].header);
        for k in 0..layout.len() {
            let entry = &self.entries[layout[k]];
            let limit = layout.get(k + 1).map_or(self.directory_start, |&next| self.entries[next].header);
            if entry.header.checked_add(LOCAL_SIZE as u64).is_none_or(|end| end > self.directory_start) {
                return Err(Fault::FalseSize.at(self.shown(entry)));
            }
            let data = self.local_header(entry)?;
            let entry = &mut self.entries[layout[k]];
            entry.data = data;
            let (end, is_false) = (entry.end(), entry.is_stored() && entry.size != entry.compressed);
            if is_false || end > self.directory_start {
                return Err(Fault::FalseSize.at(self.shown(&self.entries[layout[k]])));
            }
            if end > limit {
                return Err(Fault::Overlap.at(self.shown(&self.entries[layout[k]])));
            }
        }
        self.layout = layout;
        Ok(())
    }

    /// Checks the local header and says where the contents start.
    fn local_header(&self, entry: &Entry) -> Result<u64, Error> {
        let name = self.name(entry);
        let header = read(&self.source, entry.header, (LOCAL_SIZE + name.len()) as u64)?;
        let agrees = header[..4] == LOCAL
            && usize::from(u16_at(&header, 26)) == name.len()
            && header[LOCAL_SIZE..] == *name
            && u16_at(&header, 8) == entry.method
            && (u16_at(&header, 6) ^ entry.flags) & (ENCRYPTED | HAS_DESCRIPTOR) == 0;
        if !agrees {
            return Err(Fault::BadZip.at(format_args!("{}: its local header", self.shown(entry))));
        }
        // A writer that streams leaves the sizes to the descriptor, and one that needs 64 bits fills the fields.
        for (field, size) in [(18, entry.compressed), (22, entry.size)] {
            let local = u32_at(&header, field);
            if local != size && local != MAX32 && !(local == 0 && entry.has_descriptor()) {
                return Err(Fault::FalseSize.at(self.shown(entry)));
            }
        }
        Ok(entry.header + header.len() as u64 + u64::from(u16_at(&header, 28)))
    }
}

/// Whether whoever extracts an entry of this name would write elsewhere. We never do; but nobody who means well writes
/// such a name, and we do not hand it on.
fn leads_out(name: &[u8]) -> bool {
    let is_separator = |b: &u8| matches!(b, b'/' | b'\\');
    let is_absolute = name.first().is_some_and(is_separator) || name.get(1) == Some(&b':');
    is_absolute || name.contains(&0) || name.split(is_separator).any(|part| part == b"..")
}

/// The end record: the only fixed point of a zip file, at its end.
struct End {
    start: u64,
    record: Vec<u8>,
    comment: Vec<u8>,
}

/// What the end records say of the directory.
struct Place {
    start: u64,
    size: u64,
    count: u64,
    versions: [u8; 4],
    comment: Vec<u8>,
}

impl End {
    /// The last end record of the source. torch's reader takes it too, with or without something behind it.
    fn find<S: Source>(source: &S) -> Result<Option<End>, Error> {
        let size = source.size()?;
        let len = size.min((END_SIZE + usize::from(u16::MAX)) as u64);
        let tail = read(source, size - len, len)?;
        let Some(last) = tail.len().checked_sub(END_SIZE) else { return Ok(None) };
        for at in (0..=last).rev() {
            let (record, rest) = tail[at..].split_at(END_SIZE);
            let comment = usize::from(u16_at(record, 20));
            if record[..4] == END && comment <= rest.len() {
                return Ok(Some(End {
                    start: size - len + at as u64,
                    record: record.to_vec(),
                    comment: rest[..comment].to_vec(),
                }));
            }
        }
        Ok(None)
    }

    fn end(&self) -> u64 {
        self.start + (END_SIZE + self.comment.len()) as u64
    }

    /// Follows the locator to the 64-bit record, if there is one. Both records must say the same.
    fn resolve<S: Source>(self, source: &S) -> Result<Place, Error> {
        let broken = || Fault::BadZip.at("the end records");
        let narrow = [u32_at(&self.record, 16), u32_at(&self.record, 12), u64::from(u16_at(&self.record, 10))];
        let full = [MAX32, MAX32, MAX16];
        let disks = [4, 6].map(|field| u64::from(u16_at(&self.record, field)));
        if disks.iter().any(|&d| d != 0 && d != MAX16) || u16_at(&self.record, 8) != u16_at(&self.record, 10) {
            return Err(broken());
        }
        let place = |[start, size, count]: [u64; 3], versions, comment| Place { start, size, count, versions, comment };
        let locator = match self.start.checked_sub(LOCATOR64_SIZE as u64) {
            Some(at) => read(source, at, LOCATOR64_SIZE as u64)?,
            None => Vec::new(),
        };
        if locator.get(..4) != Some(&LOCATOR64) {
            return Ok(place(narrow, [0x1e, 3, 45, 0], self.comment));
        }
        let at = u64_at(&locator, 8);
        let room = self.start - LOCATOR64_SIZE as u64;
        if at.checked_add(END64_SIZE as u64).is_none_or(|end| end > room) {
            return Err(broken());
        }
        let record = read(source, at, END64_SIZE as u64)?;
        let wide = [48, 40, 32].map(|field| u64_at(&record, field));
        let agree = (0..3).all(|i| narrow[i] == wide[i] || narrow[i] == full[i]);
        if record[..4] != END64 || !agree || wide[0].checked_add(wide[1]).is_none_or(|end| end > at) {
            return Err(broken());
        }
        Ok(place(wide, [record[12], record[13], record[14], record[15]], self.comment))
    }
}

/// Reads exactly `len` bytes, without allocating more than the source can fill.
pub(super) fn read<S: Source>(source: &S, offset: u64, len: u64) -> Result<Vec<u8>, Error> {
    let size = source.size()?;
    if offset.checked_add(len).is_none_or(|end| end > size) {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    let len = usize::try_from(len).map_err(|_| Fault::TooLarge.at("an entry"))?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| Fault::TooLarge.at(format_args!("{len} bytes")))?;
    // One byte more is asked for, so that the end is seen without another look.
    source.range(offset, len as u64)?.read_to_end(&mut bytes)?;
    if bytes.len() == len { Ok(bytes) } else { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) }
}
