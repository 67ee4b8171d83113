//! A state in a file: each change is on the disk before it counts, and no two processes have one file.
//!
//! Must not know what the bounds are. Calls block for as long as the disk takes.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;

use super::act::{ActId, Ending, Intent, Refusal};
use super::bound::Bound;
use super::disk::{Disk, RealDisk};
use super::document::{Contents, FILE, MAX_SIZE, ReadError, Snapshot, contents};
use super::form::since;
use super::options::BoundOptions;
use super::state::{NoSuchAct, State};
use crate::domain::{Cause, NodeName, PodUid, RemedyKind};

/// What is being written.
const TMP: &str = "ledger.json.tmp";
/// What was set aside has this before its time.
const BAD: &str = "ledger.json.bad-";
/// So many files that were set aside are kept.
const MOST_BAD: usize = 3;
/// The file whose lock says that the ledger is in use.
const LOCK: &str = "ledger.lock";
/// Refusals are written at most this often; an act writes them too.
const REFUSALS_EVERY: Duration = Duration::from_secs(5);

/// One node's ledger: its [`State`], and the file that holds it.
pub struct Ledger {
    node: NodeName,
    options: BoundOptions,
    state: State,
    store: Option<Store>,
    /// What memory has and the disk lacks.
    unsaved: Unsaved,
    /// Why the last save failed.
    trouble: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unsaved {
    Nothing,
    Refusals,
    Facts,
}

struct Store {
    dir: PathBuf,
    disk: Box<dyn Disk + Sync>,
    saved: Option<Timestamp>,
    /// Held as long as it is open.
    _lock: File,
}

/// A file that was there and was not taken. The bounds start closed then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// What is wrong with it.
    pub why: String,
    /// Where it is now; `None` where an earlier process set it aside and wrote no other.
    pub to: Option<PathBuf>,
}

impl fmt::Display for SetAside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ledger was not taken, so the bounds start closed: {}", self.why)?;
        self.to.iter().try_for_each(|to| write!(f, "; it is {} now", to.display()))
    }
}

/// A ledger that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Another process has it.
    #[error("{}: another process has this ledger{}", path.display(), pid.map(|pid| format!(" (its pid there: {pid})")).unwrap_or_default())]
    Locked {
        /// The lock.
        path: PathBuf,
        /// That process's pid as it sees it, where it could be read.
        pid: Option<u32>,
    },
    /// The system did not let it be opened.
    #[error("{}: {what}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What could not be done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Something that happened and is not on the disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// No open act has this number; nothing was changed.
    #[error(transparent)]
    NoSuchAct(#[from] NoSuchAct),
    /// It is kept in memory, and written with the next change. No act begins before that.
    #[error("the ledger cannot be written: {0}")]
    Unsaved(String),
}

impl Ledger {
    /// Opens the ledger of a directory, which is made if it is not there, and holds it until dropped.
    ///
    /// Without a file all bounds are full. A file that is no ledger of this node and version is set aside; the bounds
    /// start closed. Where the ledger can be read and not written, it opens, and no act begins.
    pub fn open(
        dir: &Path,
        node: &NodeName,
        options: BoundOptions,
        now: Timestamp,
    ) -> Result<(Self, Option<SetAside>), LedgerError> {
        Self::open_on(Box::new(RealDisk), dir, node, options, now)
    }

    pub(super) fn open_on(
        mut disk: Box<dyn Disk + Sync>,
        dir: &Path,
        node: &NodeName,
        options: BoundOptions,
        now: Timestamp,
    ) -> Result<(Self, Option<SetAside>), LedgerError> {
        let lock = lock(dir)?;
        let (mut state, set_aside) = match load(disk.as_mut(), dir, node, now)? {
            Loaded::Nothing => (State::fresh(&options), None),
            Loaded::State(state) => (*state, None),
            Loaded::Not(aside) => (State::closed("the ledger could not be read", now, &options), Some(aside)),
        };
        state.catch_up(now, &options);
        let store = Store { dir: dir.to_owned(), disk, saved: None, _lock: lock };
        let mut ledger = Self {
            node: node.clone(),
            options,
            state,
            store: Some(store),
            unsaved: Unsaved::Facts,
            trouble: None,
        };
        // What fails is in `trouble`, and holds back each act until it is mended.
        drop(ledger.flush(now));
        Ok((ledger, set_aside))
    }

    /// One in memory alone, with all bounds full.
    pub fn volatile(node: &NodeName, options: BoundOptions) -> Self {
        let state = State::fresh(&options);
        Self { node: node.clone(), options, state, store: None, unsaved: Unsaved::Nothing, trouble: None }
    }

    /// Reads the ledger of a directory without holding it, for those who only look.
    pub fn read(dir: &Path) -> Result<Snapshot, ReadError> {
        Snapshot::read(dir)
    }

    /// Whether such an act may begin now. Changes nothing but for following the clock.
    pub fn check(
        &mut self,
        remedy: RemedyKind,
        cause: &Cause,
        pod: &PodUid,
        now: Timestamp,
    ) -> Result<(), Bound> {
        self.state.catch_up(now, &self.options);
        if self.unsaved == Unsaved::Facts {
            self.flush(now).map_err(|error| Bound::Unrecorded(error.to_string()))?;
        }
        self.state.check(remedy, cause, pod, now, &self.options)
    }

    /// An act begins: once this returns its number, the intent is on the disk, together with all that came before.
    pub fn begin(&mut self, intent: Intent, now: Timestamp) -> Result<ActId, Bound> {
        let mut next = self.state.clone();
        let id = next.begin(intent, now, &self.options)?;
        self.save(&next, now).map_err(Bound::Unrecorded)?;
        self.state = next;
        Ok(id)
    }

    /// The call of an open act is known to have been taken.
    pub fn sent(&mut self, id: ActId, note: &str, now: Timestamp) -> Result<(), RecordError> {
        self.state.sent(id, note, now)?;
        self.unsaved = Unsaved::Facts;
        self.flush(now)
    }

    /// An open act has its outcome.
    pub fn end(&mut self, id: ActId, ending: Ending, now: Timestamp) -> Result<(), RecordError> {
        self.state.end(id, ending, now, &self.options)?;
        self.unsaved = Unsaved::Facts;
        self.flush(now)
    }

    /// Something was not done. Written some seconds later, or with the next act.
    pub fn refuse(&mut self, refusal: Refusal, now: Timestamp) -> Result<(), RecordError> {
        self.state.refuse(refusal, now);
        self.unsaved = self.unsaved.max(Unsaved::Refusals);
        let saved = self.store.as_ref().and_then(|store| store.saved);
        let fresh = saved.is_some_and(|saved| saved <= now && since(saved, now) < REFUSALS_EVERY);
        if fresh && self.unsaved == Unsaved::Refusals { Ok(()) } else { self.flush(now) }
    }

    /// Writes what is not on the disk.
    pub fn flush(&mut self, now: Timestamp) -> Result<(), RecordError> {
        if self.unsaved == Unsaved::Nothing {
            return Ok(());
        }
        let state = self.state.clone();
        self.save(&state, now).map_err(RecordError::Unsaved)
    }

    /// All that is kept.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The node that it is about.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// The bounds.
    pub fn options(&self) -> &BoundOptions {
        &self.options
    }

    /// Why the last save failed, while none has gone well since.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// What would be written now.
    pub fn snapshot(&self, now: Timestamp) -> Snapshot {
        Snapshot::new(self.node.clone(), now, self.options.clone(), self.state.clone())
    }

    fn save(&mut self, state: &State, now: Timestamp) -> Result<(), String> {
        let Some(store) = &mut self.store else {
            self.unsaved = Unsaved::Nothing;
            return Ok(());
        };
        let snapshot = Snapshot::new(self.node.clone(), now, self.options.clone(), state.clone());
        match store.save(&snapshot) {
            Ok(()) => {
                store.saved = Some(now);
                (self.unsaved, self.trouble) = (Unsaved::Nothing, None);
                Ok(())
            }
            Err(error) => {
                let why = format!("{}: {error}", store.dir.join(FILE).display());
                self.unsaved = Unsaved::Facts;
                self.trouble = Some(why.clone());
                Err(why)
            }
        }
    }
}

impl Store {
    fn save(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let bytes = serde_json::to_vec(snapshot)?;
        if bytes.len() as u64 > MAX_SIZE {
            return Err(io::Error::other(format!("it would be larger than {MAX_SIZE} bytes")));
        }
        let tmp = self.dir.join(TMP);
        self.disk.remove(&tmp)?;
        let mut file = self.disk.create(&tmp)?;
        self.disk.write(&mut file, &bytes)?;
        self.disk.sync(&file)?;
        self.disk.rename(&tmp, &self.dir.join(FILE))?;
        self.disk.sync_dir(&self.dir)
    }
}

/// Takes the lock, and leaves this process's pid in its file.
fn lock(dir: &Path) -> Result<File, LedgerError> {
    let io_error = |path: &Path, what| {
        let path = path.to_owned();
        move |source| LedgerError::Io { path, what, source }
    };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(io_error(dir, "the directory cannot be made"))?;
    let path = dir.join(LOCK);
    if fs::symlink_metadata(&path).is_ok_and(|seen| !seen.is_file()) {
        let source = io::Error::other("it is no regular file");
        return Err(LedgerError::Io { path, what: "cannot be locked", source });
    }
    let opened =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut file = opened.map_err(io_error(&path, "cannot be opened"))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let read = file.take(32).read_to_string(&mut text);
            let pid = read.ok().and_then(|_| text.trim().parse().ok());
            return Err(LedgerError::Locked { path, pid });
        }
        Err(TryLockError::Error(source)) => return Err(io_error(&path, "cannot be locked")(source)),
    }
    // For people only: a full disk must not keep the watchdog from observing.
    drop(file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())));
    Ok(file)
}

enum Loaded {
    Nothing,
    State(Box<State>),
    Not(SetAside),
}

fn load(disk: &mut dyn Disk, dir: &Path, node: &NodeName, now: Timestamp) -> Result<Loaded, LedgerError> {
    let path = dir.join(FILE);
    // What an interrupted save has left. If it stays, the next save fails and says so.
    drop(disk.remove(&dir.join(TMP)));
    let found = contents(&path).map_err(|source| {
        let path = path.clone();
        LedgerError::Io { path, what: "cannot be read", source }
    })?;
    let why = match found {
        // A process that ended between setting a file aside and writing the next must not have made the bounds full.
        Contents::None if !set_aside_before(dir).is_empty() => {
            let why = "one was set aside before, and none was written since".to_owned();
            return Ok(Loaded::Not(SetAside { why, to: None }));
        }
        Contents::None => return Ok(Loaded::Nothing),
        Contents::Not(why) => why,
        Contents::Bytes(bytes) => match Snapshot::parse(&bytes) {
            Ok(snapshot) if snapshot.node() == node => {
                return Ok(Loaded::State(Box::new(snapshot.into_state())));
            }
            Ok(snapshot) => format!("it is of the node {}, and this is {node}", snapshot.node()),
            Err(why) => why,
        },
    };
    let to = dir.join(format!("{BAD}{}", now.as_second()));
    disk.rename(&path, &to).map_err(|source| {
        let path = path.clone();
        LedgerError::Io { path, what: "cannot be taken, and cannot be set aside", source }
    })?;
    let bad = set_aside_before(dir);
    for old in bad.iter().take(bad.len().saturating_sub(MOST_BAD)) {
        // One too many harms nobody.
        drop(disk.remove(old));
    }
    Ok(Loaded::Not(SetAside { why, to: Some(to) }))
}

/// The files that were set aside, the oldest first.
fn set_aside_before(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dated = entries.filter_map(|entry| {
        let name = entry.file_name();
        let at: i64 = name.to_str()?.strip_prefix(BAD)?.parse().ok()?;
        Some((at, entry.path()))
    });
    let mut dated: Vec<(i64, PathBuf)> = dated.collect();
    dated.sort();
    dated.into_iter().map(|(_, path)| path).collect()
}
