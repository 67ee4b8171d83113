//! The few calls that change the directory, so that a test can stop, break or record each.
//!
//! Must not know what is written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// What changes the directory.
pub(super) trait Disk: Send {
    /// Makes a file that was not there, for its owner alone.
    fn create(&mut self, path: &Path) -> io::Result<File>;
    /// Writes all of it.
    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()>;
    /// Waits until a file's contents are on the disk.
    fn sync(&mut self, file: &File) -> io::Result<()>;
    /// Puts a file in another's place, in one step.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Waits until a directory's names are on the disk.
    fn sync_dir(&mut self, dir: &Path) -> io::Result<()>;
    /// Removes a file or a link.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
}

/// The disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn create(&mut self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
