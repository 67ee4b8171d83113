//! Reads and writes snapshot files. Whatever is wrong with one is told with its place: key, line and column.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::str;

use serde::Deserialize;
use serde_path_to_error::{Deserializer as Tracking, Track};

use super::format::Snapshot;
use crate::cilium::strictly;

/// Files larger than this are not read (bytes).
pub const MAX_SIZE: u64 = 256 * 1024 * 1024;

/// A snapshot that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub struct SnapshotError {
    /// The file; `None` where the text did not come from one.
    pub file: Option<PathBuf>,
    /// What is wrong.
    pub problem: Problem,
}

impl std::fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}: {}", file.display(), self.problem),
            None => self.problem.fmt(f),
        }
    }
}

/// What is wrong with a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Read(io::Error),
    /// The file could not be written.
    #[error("cannot be written: {0}")]
    Write(io::Error),
    /// The file is a directory.
    #[error("is a directory")]
    Directory,
    /// The file is larger than [`MAX_SIZE`].
    #[error("is too large for a snapshot: more than {} MiB", MAX_SIZE / 1024 / 1024)]
    TooLarge,
    /// There is nothing in it.
    #[error("is empty: a snapshot has at least takenAt and cluster")]
    Empty,
    /// It is no text.
    #[error("is no text: byte {0} is not UTF-8")]
    NotText(usize),
    /// An object could not be written under other names.
    #[error("cannot be anonymised: {0}")]
    Anonymize(serde_json::Error),
    /// It is no snapshot, or one with something impossible in it.
    #[error("{} (line {line}, column {column})", with_key(key, why))]
    Malformed {
        /// The path of the key, such as `cluster.pods[3].spec.nodeName`; empty for the file as a whole.
        key: String,
        /// Line, from 1.
        line: u64,
        /// Column, from 1.
        column: u64,
        /// What is wrong there.
        why: String,
    },
}

fn with_key(key: &str, why: &str) -> String {
    if key.is_empty() { format!("is no snapshot: {why}") } else { format!("{key}: {why}") }
}

impl From<Problem> for SnapshotError {
    fn from(problem: Problem) -> Self {
        Self { file: None, problem }
    }
}

impl Snapshot {
    /// Reads a file, YAML or JSON by its content.
    pub fn load(path: &Path) -> Result<Self, SnapshotError> {
        read(path).and_then(|text| parse(&text)).map_err(|problem| in_file(path, problem))
    }

    /// Decodes a text, YAML or JSON by its content.
    #[expect(clippy::should_implement_trait, reason = "it implements it as well")]
    pub fn from_str(text: &str) -> Result<Self, SnapshotError> {
        Ok(parse(text)?)
    }

    /// Writes JSON; a file that is there is replaced as a whole or not at all. Returns the size in bytes.
    pub fn save(&self, path: &Path) -> Result<u64, SnapshotError> {
        let write = |out: &mut dyn Write| serde_json::to_writer(out, self).map_err(io::Error::from);
        write_whole(path, write).map_err(|error| in_file(path, Problem::Write(error)))
    }
}

impl str::FromStr for Snapshot {
    type Err = SnapshotError;

    fn from_str(text: &str) -> Result<Self, SnapshotError> {
        Ok(parse(text)?)
    }
}

fn in_file(path: &Path, problem: Problem) -> SnapshotError {
    SnapshotError { file: Some(path.to_owned()), problem }
}

fn read(path: &Path) -> Result<String, Problem> {
    let metadata = fs::metadata(path).map_err(Problem::Read)?;
    if metadata.is_dir() {
        return Err(Problem::Directory);
    }
    if metadata.len() > MAX_SIZE {
        return Err(Problem::TooLarge);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    // A pipe has no size, and a file may grow.
    let limited = File::open(path).map_err(Problem::Read)?.take(MAX_SIZE + 1);
    { limited }.read_to_end(&mut bytes).map_err(Problem::Read)?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(Problem::TooLarge);
    }
    String::from_utf8(bytes).map_err(|error| Problem::NotText(error.utf8_error().valid_up_to()))
}

fn parse(text: &str) -> Result<Snapshot, Problem> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(Problem::Empty);
    }
    if text.len() as u64 > MAX_SIZE {
        return Err(Problem::TooLarge);
    }
    strictly(|| if looks_like_json(text) { parse_json(text) } else { parse_yaml(text) })
}

/// A flow mapping of YAML seldom quotes its first key; JSON always does.
fn looks_like_json(text: &str) -> bool {
    let inner = text.trim_start().strip_prefix('{').map(str::trim_start);
    inner.is_some_and(|inner| inner.is_empty() || inner.starts_with(['"', '}']))
}

fn parse_json(text: &str) -> Result<Snapshot, Problem> {
    let mut track = Track::new();
    let mut json = serde_json::Deserializer::from_str(text);
    let decoded = Snapshot::deserialize(Tracking::new(&mut json, &mut track));
    decoded.and_then(|snapshot| json.end().map(|()| snapshot)).map_err(|error| {
        let place = format!(" at line {} column {}", error.line(), error.column());
        let why = error.to_string();
        Problem::Malformed {
            key: key(track),
            line: error.line() as u64,
            // Of what stands at the very start of a line it says 0.
            column: error.column().max(1) as u64,
            why: why.strip_suffix(&place).unwrap_or(&why).to_owned(),
        }
    })
}

fn parse_yaml(text: &str) -> Result<Snapshot, Problem> {
    let mut track = Track::new();
    // A plain `7` is a number for every other reader of YAML: as a name it has to be quoted.
    let options = serde_saphyr::options! {
        no_schema: true,
        strict_booleans: true,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_events: 100_000_000,
            max_nodes: 50_000_000,
            max_total_scalar_bytes: 256 * 1024 * 1024,
        },
    };
    let decoded = serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
        Snapshot::deserialize(Tracking::new(yaml, &mut track))
    });
    decoded.map_err(|error| {
        let error = error.without_snippet();
        let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
        let why = match error {
            serde_saphyr::Error::DuplicateMappingKey { key: Some(twice), .. } => {
                format!("the key `{twice}` is there twice")
            }
            serde_saphyr::Error::MultipleDocuments { .. } => "more than one YAML document".to_owned(),
            other => {
                let why = other.to_string();
                let place = format!(" at line {line}, column {column}");
                why.strip_suffix(&place).unwrap_or(&why).to_owned()
            }
        };
        Problem::Malformed { key: key(track), line, column, why }
    })
}

/// The path of the key that was being decoded; `.` is the file as a whole.
fn key(track: Track) -> String {
    let path = track.path().to_string();
    // `?` is a key that was not reached.
    let path = path.strip_suffix('?').unwrap_or(&path).trim_end_matches('.');
    path.to_owned()
}

/// Writes beside the file and renames, so that nobody ever sees half of it.
pub(super) fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<u64> {
    // A pipe or a terminal cannot be replaced.
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        let mut out = Counted { inner: BufWriter::new(OpenOptions::new().write(true).open(path)?), bytes: 0 };
        write(&mut out)?;
        out.flush()?;
        return Ok(out.bytes);
    }
    // A link keeps pointing to what is replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| io::Error::other("no file name"))?;
    let temporary = dir.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let written = (|| {
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        let mut out = Counted { inner: BufWriter::new(file), bytes: 0 };
        write(&mut out)?;
        out.write_all(b"\n")?;
        let bytes = out.bytes;
        out.inner.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(dir)?.sync_all()?;
        Ok(bytes)
    })();
    if written.is_err() {
        // It may not be there; what failed first is what counts.
        let _ = fs::remove_file(&temporary);
    }
    written
}

struct Counted<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
