//! Disks that fail, record, or end the process at one call.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::ledger::disk::{Disk, RealDisk};

/// What is done before each call of the disk: it may refuse it, or not return.
pub(super) trait Before: Send {
    fn call(&mut self, name: &'static str, path: &Path) -> io::Result<()>;
    /// The call was done.
    fn done(&mut self) {}
    /// How much of a file is written, of so many bytes.
    fn written(&self, all: usize) -> usize {
        all
    }
}

/// The real disk, with something before each call.
pub(super) struct Watched<B>(pub(super) B);

impl<B: Before> Watched<B> {
    fn around<T>(
        &mut self,
        name: &'static str,
        path: &Path,
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.0.call(name, path)?;
        let result = call();
        self.0.done();
        result
    }
}

impl<B: Before> Disk for Watched<B> {
    fn create(&mut self, path: &Path) -> io::Result<File> {
        self.around("create", path, || RealDisk.create(path))
    }

    fn write(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        let part = self.0.written(bytes.len());
        if part < bytes.len() {
            file.write_all(&bytes[..part])?;
            file.sync_all()?;
        }
        self.around("write", Path::new(""), || RealDisk.write(file, &bytes[part % bytes.len()..]))
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        self.around("sync", Path::new(""), || RealDisk.sync(file))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.around("rename", to, || RealDisk.rename(from, to))
    }

    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.around("sync-dir", dir, || RealDisk.sync_dir(dir))
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.around("remove", path, || RealDisk.remove(path))
    }
}

/// Records each call, and refuses those that it is told to.
#[derive(Clone, Default)]
pub(super) struct Script(Arc<Mutex<(Vec<String>, Option<&'static str>)>>);

impl Script {
    /// All calls since the last time.
    pub(super) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().0)
    }

    /// From now on calls of this name fail; `None`: none does.
    pub(super) fn refuse(&self, name: Option<&'static str>) {
        self.0.lock().unwrap().1 = name;
    }
}

impl Before for Script {
    fn call(&mut self, name: &'static str, path: &Path) -> io::Result<()> {
        let mut script = self.0.lock().unwrap();
        let file = path.file_name().filter(|_| name != "sync-dir").map(PathBuf::from).unwrap_or_default();
        script.0.push(format!("{name} {}", file.display()).trim().to_owned());
        if script.1 == Some(name) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }
}

/// Ends the process at the n-th call: before it, after it, or in the middle of a write.
pub(super) struct Crash {
    pub(super) at: usize,
    pub(super) how: How,
    pub(super) calls: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Before,
    After,
    Torn,
}

impl Before for Crash {
    fn call(&mut self, _: &'static str, _: &Path) -> io::Result<()> {
        self.calls += 1;
        if self.calls == self.at && self.how != How::After {
            std::process::abort();
        }
        Ok(())
    }

    fn done(&mut self) {
        if self.calls == self.at && self.how == How::After {
            std::process::abort();
        }
    }

    fn written(&self, all: usize) -> usize {
        if self.calls + 1 == self.at && self.how == How::Torn { all / 2 } else { all }
    }
}
