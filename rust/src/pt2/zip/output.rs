//! Where an archive is written to.
//!
//! Between files the kernel moves the bytes, and where the file system can let two files share them it does that
//! instead. Of what has to be copied, each piece is sent to the disk while the next one is copied: at the end, when the
//! file must be on the disk, it nearly is, and so a rewrite takes no longer than a copy that promises nothing.

use std::fs::File;
use std::io::{self, Seek, Write};

use super::Source;

/// Enough that a system call is cheap, and little enough that the disk has something to do from early on.
const PIECE: u64 = 8 << 20;

/// Something that ranges of a source are written to.
pub trait Output<S: Source>: Write {
    /// Appends a range of the source.
    fn append(&mut self, source: &S, offset: u64, len: u64) -> io::Result<()>;
}

impl Output<File> for File {
    fn append(&mut self, source: &File, offset: u64, len: u64) -> io::Result<()> {
        if len <= PIECE {
            return copy(source, offset, len, self);
        }
        let start = self.stream_position()?;
        kernel::prepare(self, source, start, len);
        for done in (0..len).step_by(usize::try_from(PIECE).unwrap_or(usize::MAX)) {
            let piece = PIECE.min(len - done);
            copy(source, offset + done, piece, self)?;
            kernel::begin_writing(self, start + done, piece);
        }
        Ok(())
    }
}

impl<S: Source> Output<S> for Vec<u8> {
    fn append(&mut self, source: &S, offset: u64, len: u64) -> io::Result<()> {
        copy(source, offset, len, self)
    }
}

fn copy<S: Source, W: Write>(source: &S, offset: u64, len: u64, out: &mut W) -> io::Result<()> {
    let copied = io::copy(&mut source.range(offset, len)?, out)?;
    if copied == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Both are hints: what a file system cannot do, the copy that follows does without.
#[cfg(target_os = "linux")]
mod kernel {
    use std::fs::File;
    use std::num::NonZeroU64;

    use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, ftruncate, ioctl_ficlone};

    /// Finds room for a range at once, which is quicker than piece by piece; not where files can share bytes, since
    /// there `copy_file_range` needs no room at all.
    pub fn prepare(out: &File, source: &File, start: u64, len: u64) {
        let can_share = start == 0 && ioctl_ficlone(out, source).is_ok();
        if can_share {
            let _ = ftruncate(out, 0);
        } else {
            let _ = fallocate(out, FallocateFlags::KEEP_SIZE, start, len);
        }
    }

    /// Has the disk begin with a range, and does not wait for it. To say that we shall not need it is how one asks for
    /// that.
    pub fn begin_writing(out: &File, start: u64, len: u64) {
        let _ = fadvise(out, start, NonZeroU64::new(len), Advice::DontNeed);
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    use std::fs::File;

    pub fn prepare(_: &File, _: &File, _: u64, _: u64) {}
    pub fn begin_writing(_: &File, _: u64, _: u64) {}
}
