//! One more entry at the end of an archive that was just written.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

use super::{Archive, CENTRAL_SIZE, EXTRA_PADDING, LOCAL_SIZE, write};
use crate::error::Error;
use crate::pt2::fault::Fault;

/// The version of the format that stored entries need.
const STORED: u16 = 10;
/// The first of January 1980, the zip format's own origin: the same input always becomes the same bytes.
const DATE: u16 = 0x21;

/// Adds a stored entry to the archive in `file`, over its directory, which is written again behind it.
pub fn append(file: &mut File, name: &[u8], contents: &[u8]) -> Result<(), Error> {
    let archive = Archive::open(file.try_clone()?)?;
    if archive.entries.iter().any(|e| archive.name(e) == name) {
        return Err(Fault::DuplicateEntry.at(String::from_utf8_lossy(name)));
    }
    let at = archive.directory_start;
    let (Ok(name_len), Ok(size)) = (u16::try_from(name.len()), u32::try_from(contents.len())) else {
        return Err(Fault::TooLarge.at(String::from_utf8_lossy(name)));
    };
    let start = at + (LOCAL_SIZE + name.len() + 4) as u64;
    let padding = usize::try_from(start.next_multiple_of(write::ALIGNMENT) - start).unwrap_or(0);
    let padding = write::field(EXTRA_PADDING, &vec![b'Z'; padding]);
    // What both headers have in common, from the needed version to the length of the name.
    let mut common = Vec::new();
    for word in [STORED, 0, 0, 0, DATE] {
        common.extend(word.to_le_bytes());
    }
    for word in [crc32fast::hash(contents), size, size] {
        common.extend(word.to_le_bytes());
    }
    common.extend(name_len.to_le_bytes());
    let mut local = super::LOCAL.to_vec();
    local.extend(&common);
    local.extend(u16::try_from(padding.len()).unwrap_or(0).to_le_bytes());
    local.extend(name);
    local.extend(padding);
    let zip64 = if at >= super::MAX32 { write::field(super::EXTRA_ZIP64, &at.to_le_bytes()) } else { Vec::new() };
    let mut record = super::CENTRAL.to_vec();
    record.extend(STORED.to_le_bytes());
    record.extend(&common);
    record.extend(u16::try_from(zip64.len()).unwrap_or(0).to_le_bytes());
    record.extend([0; 10]); // comment, disk, attributes
    record.extend(write::narrow(at));
    debug_assert_eq!(record.len(), CENTRAL_SIZE);
    record.extend(name);
    record.extend(zip64);
    file.seek(SeekFrom::Start(at))?;
    file.write_all(&local)?;
    file.write_all(contents)?;
    let start = at + (local.len() + contents.len()) as u64;
    let directory = [&archive.directory[..], &record].concat();
    file.write_all(&write::end(&archive, directory, archive.entries.len() as u64 + 1, start))?;
    Ok(())
}
