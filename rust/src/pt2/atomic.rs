//! Writing a file so that, whatever happens, there is the old one or the new one, whole.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

/// The ending of temporary files. One that a killed process left behind can be removed.
pub const TEMPORARY: &str = ".mutcanon-tmp";

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// Writes `path`: `write` fills a temporary file beside it, which then takes its place.
pub fn replace(
    path: &Path,
    permissions: Permissions,
    write: impl FnOnce(&mut File) -> Result<(), Error>,
) -> Result<(), Error> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file_name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
    let mut name = OsString::from(".");
    name.push(file_name);
    name.push(format!(".{}.{}{TEMPORARY}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
    let mut temporary = Temporary { path: folder.join(name), is_done: false };
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&temporary.path)?;
    write(&mut file)?;
    keep_owner(path, &file);
    file.set_permissions(permissions)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary.path, path)?;
    temporary.is_done = true;
    sync_folder(folder)
}

/// Removes the file unless it took its place.
struct Temporary {
    path: PathBuf,
    is_done: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_done {
            // Whatever went wrong before is what the caller is told.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A file that takes the place of another belongs to the same user where we are allowed to say so.
#[cfg(unix)]
fn keep_owner(old: &Path, new: &File) {
    use std::os::unix::fs::{MetadataExt, fchown};
    if let (Ok(old), Ok(now)) = (fs::metadata(old), new.metadata())
        && (old.uid(), old.gid()) != (now.uid(), now.gid())
    {
        let _ = fchown(new, Some(old.uid()), Some(old.gid()));
    }
}

#[cfg(not(unix))]
fn keep_owner(_old: &Path, _new: &File) {}

/// Makes the new name survive a loss of power.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> Result<(), Error> {
    Ok(File::open(folder)?.sync_all()?)
}

#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> Result<(), Error> {
    Ok(())
}
