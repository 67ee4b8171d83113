//! What is known of versions of Cilium and of IPAM modes: one table, the gate that it is, and who needs no watchdog.
//!
//! Pure. It must not know how a version is read, nor whether somebody told the watchdog to act all the same. What is not
//! in the table is unknown, and unknown only observes. `docs/compatibility.md` is made from it ([`document`]).

use std::fmt::{self, Write as _};
use std::str::FromStr;

use super::ids::IdError;
use super::objects::IpamMode;
use super::observation::Read;

/// A version of Cilium, without what follows its patch number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CiliumVersion {
    /// 1 to this day.
    pub major: u32,
    /// Where the API differs.
    pub minor: u32,
    /// 0 where none is named.
    pub patch: u32,
}

impl FromStr for CiliumVersion {
    type Err = IdError;

    /// The first word counts: `1.20.2 (v1.20.2-abcdef)`, `v1.18.2`, `1.20.0-rc.1`, `1.17.3-ee`, `1.19`. What follows it
    /// is a build, or what the agent has to complain about.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let error = || IdError::new("Cilium version", text);
        let word = text.split_whitespace().next().ok_or_else(error)?;
        let word = word.strip_prefix('v').unwrap_or(word);
        let numbers = word.split(['-', '+']).next().unwrap_or_default();
        let mut parts = numbers.split('.').map(number);
        let (Some(Some(major)), Some(Some(minor)), patch, None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(error());
        };
        let patch = patch.unwrap_or(Some(0)).ok_or_else(error)?;
        Ok(Self { major, minor, patch })
    }
}

/// Digits alone: Rust would take a sign as well.
fn number(part: &str) -> Option<u32> {
    part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?
}

impl fmt::Display for CiliumVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What is known of one minor version of Cilium 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRow {
    /// The minor version.
    pub minor: u32,
    /// The ids by which an endpoint can be disconnected.
    pub ids: &'static str,
    /// What names the owner of an endpoint.
    pub owner: &'static str,
    /// The first patch version that leaves no such endpoints behind, if one is known. Enter it with its source.
    pub fixed: Option<u32>,
    /// What it was checked against.
    pub checked: &'static str,
    /// Where it says so.
    pub source: &'static str,
}

const CONTAINER: &str = "`container-id`";
const BOTH: &str = "`cni-attachment-id`, else `container-id`";
const ATTACHMENT: &str = "`cni-attachment-id`";
const IDENTIFIERS: &str = "`external-identifiers`";
const NAMES: &str = "`external-identifiers`, else the controller `resolve-labels-…`";
const CONTROLLER: &str = "the controller `resolve-labels-…`";
const BY_MODEL: &str = "nothing: as its API is defined";
const SIMULATED: &str = "the simulated agent";
const REAL: &str = "the real agent's API, and the simulated agent";
const MODEL: &str = "`EndpointIdentifiers` in `api/v1/openapi.yaml`";
const ANSWERS: &str = "its answers in `tests/cilium-agent/transcripts`";

const fn row(
    minor: u32,
    ids: &'static str,
    owner: &'static str,
    checked: &'static str,
    source: &'static str,
) -> VersionRow {
    VersionRow { minor, ids, owner, fixed: None, checked, source }
}

/// Every minor version that is known, oldest first, without a gap.
pub const VERSIONS: [VersionRow; 7] = [
    row(14, CONTAINER, IDENTIFIERS, SIMULATED, MODEL),
    row(15, BOTH, IDENTIFIERS, BY_MODEL, MODEL),
    row(16, BOTH, IDENTIFIERS, BY_MODEL, MODEL),
    row(17, BOTH, NAMES, BY_MODEL, MODEL),
    row(18, BOTH, NAMES, SIMULATED, MODEL),
    row(19, BOTH, NAMES, BY_MODEL, MODEL),
    row(20, ATTACHMENT, CONTROLLER, REAL, ANSWERS),
];

/// What is known of one IPAM mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpamRow {
    /// The word of the agent's configuration (`status.ipam-mode`).
    pub mode: &'static str,
    /// Whether an endpoint may be disconnected.
    pub disconnect: bool,
    /// Why.
    pub reason: &'static str,
    /// Where it says so.
    pub source: &'static str,
}

const NO_RULES: &str = "no routing rule on the node goes by a pod's address";
const DELEGATED: &str = "another plugin gives the addresses, and no routing rule goes by them (unless \
    `install-uplink-routes-for-delegated-ipam` is on: see below)";
const RULES: &str =
    "the teardown of an old endpoint removes the routing rules of its address, which can be the new owner's";
const DELETE: &str = "`Endpoint.Delete` in `pkg/endpoint/endpoint.go` removes rules on other modes only";
const GUARD: &str = "cilium/cilium#46677";

const fn mode(mode: &'static str, disconnect: bool, reason: &'static str, source: &'static str) -> IpamRow {
    IpamRow { mode, disconnect, reason, source }
}

/// Every IPAM mode that is known.
pub const IPAM_MODES: [IpamRow; 8] = [
    mode("cluster-pool", true, NO_RULES, DELETE),
    mode("kubernetes", true, NO_RULES, DELETE),
    mode("multi-pool", true, NO_RULES, DELETE),
    mode("crd", true, NO_RULES, DELETE),
    mode("delegated-plugin", true, DELEGATED, DELETE),
    mode("eni", false, RULES, GUARD),
    mode("azure", false, RULES, GUARD),
    mode("alibabacloud", false, RULES, GUARD),
];

/// The row of a version, if it is known.
pub fn known_version(version: CiliumVersion) -> Option<&'static VersionRow> {
    VERSIONS.iter().find(|row| version.major == 1 && version.minor == row.minor)
}

/// The row of an IPAM mode, if it is known.
pub fn known_mode(mode: &IpamMode) -> Option<&'static IpamRow> {
    IPAM_MODES.iter().find(|row| row.mode == mode.0)
}

/// The known versions, for people: `1.14 to 1.20`.
pub fn known_versions() -> String {
    let minor = |row: Option<&VersionRow>| row.map_or(0, |row| row.minor);
    format!("1.{} to 1.{}", minor(VERSIONS.first()), minor(VERSIONS.last()))
}

/// What is known of a fix of the leak in Cilium itself, for one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fix {
    /// No version is known to have one.
    Nowhere,
    /// This version has it.
    Here,
    /// This version has none, and this is the oldest newer one that has.
    From(CiliumVersion),
    /// Some versions have it; this one is not in the table.
    Unknown,
}

/// What these rows, which are all that is known ([`VERSIONS`]), say of a version.
pub fn fix(version: CiliumVersion, rows: &[VersionRow]) -> Fix {
    let fixed = |row: &VersionRow| row.fixed.map(|patch| CiliumVersion { major: 1, minor: row.minor, patch });
    if rows.iter().all(|row| row.fixed.is_none()) {
        return Fix::Nowhere;
    }
    let Some(row) = rows.iter().find(|row| version.major == 1 && version.minor == row.minor) else {
        return Fix::Unknown;
    };
    if fixed(row).is_some_and(|first| first <= version) {
        return Fix::Here;
    }
    rows.iter().filter_map(fixed).filter(|first| *first > version).min().map_or(Fix::Unknown, Fix::From)
}

/// What may be done on this version and IPAM mode, whatever the verdicts say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// All remedies.
    Heal,
    /// All remedies but `disconnect-endpoint`; why.
    NoDisconnect(&'static str),
    /// Nothing, unless somebody says so: what is there is unknown; why.
    Observe(String),
}

/// The gate. A version that could not be read, and what is not in the table, only observes.
pub fn gate(version: &Read<CiliumVersion>, mode: &IpamMode) -> Gate {
    let version = match version {
        Ok(version) => *version,
        Err(why) => return Gate::Observe(format!("the version of Cilium could not be read: {why}")),
    };
    if known_version(version).is_none() {
        let known = known_versions();
        return Gate::Observe(format!("Cilium {version} is unknown to this program, which knows {known}"));
    }
    match known_mode(mode) {
        None => {
            let shown: String = mode.0.chars().take(64).collect();
            Gate::Observe(format!("the IPAM mode {shown:?} is unknown to this program"))
        }
        Some(row) if row.disconnect => Gate::Heal,
        Some(row) => Gate::NoDisconnect(row.reason),
    }
}

/// What Cilium's own threads say of the leak.
const UPSTREAM: &str = "\
### The leak itself

\"None known\" means that no release is known to leave no such endpoints behind. What was found in Cilium's own threads:

| thread | what it says |
|---|---|
| cilium/cilium#14898, merged | endpoints whose network interface is gone are collected by and by. One whose interface is still there stays |
| cilium/cilium#31456, merged | one cause, of chained Cilium only: endpoints made before 1.15 were not found again when their pods ended |
| cilium/cilium#29647, closed as stale | a pod that is deleted by force, without a call of the CNI plugin, leaves its endpoint behind |
| cilium/cilium#34595, closed, not merged | would have deleted the old endpoint when a new one asks for its address. It does not ask whether the old one is alive |

`doctor` has a line `retirement` that goes by this column: [when can I remove it?](faq.md#when-can-i-remove-it)
";

/// `docs/compatibility.md`.
pub fn document() -> String {
    let mut text = format!(
        "# Compatibility\n\n\
         This page is made from the table in `src/domain/compatibility.rs`; `UPDATE_DOCS=1 cargo test --lib cli::doctor` writes it anew.\n\n\
         The watchdog asks its agent for its version and IPAM mode. What is not on this page, or cannot be read, is unknown: there it\n\
         only observes, unless it is told otherwise.\n\n\
         ## Cilium\n\n\
         Known: {}. What is between them differs in how an endpoint can be named for good, and in what names its pod.\n\n\
         | version | disconnects by | the owner is named by | leak fixed in | checked against | source |\n|---|---|---|---|---|---|\n",
        known_versions()
    );
    for row in &VERSIONS {
        let VersionRow { minor, ids, owner, fixed, checked, source } = row;
        let fixed = fixed.map_or_else(|| "none known".to_owned(), |patch| format!("1.{minor}.{patch}"));
        // A String takes all that is written to it.
        let _ = writeln!(text, "| 1.{minor} | {ids} | {owner} | {fixed} | {checked} | {source} |");
    }
    text += "\nWhere the agent names no owner, a CiliumEndpoint with the same id and attachment does (1.15 and newer).\n\n";
    text += UPSTREAM;
    text += "\n## IPAM modes\n\n\
             By `status.ipam-mode` of the agent's configuration. Where disconnecting is withheld the other remedies are not.\n\n\
             | mode | `disconnect-endpoint` | why | source |\n|---|---|---|---|\n";
    for row in &IPAM_MODES {
        let allowed = if row.disconnect { "yes" } else { "withheld" };
        let _ = writeln!(text, "| `{}` | {allowed} | {} | {} |", row.mode, row.reason, row.source);
    }
    text += "\nOn `delegated-plugin` with `install-uplink-routes-for-delegated-ipam` the agent keeps routing rules by address as on `eni`, and\n\
             removes them with the old endpoint. Stay in the mode `observe` there.\n";
    text
}
