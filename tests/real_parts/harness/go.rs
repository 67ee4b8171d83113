//! Builds the two Go programs beside the tests, on first use and when their sources are newer.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::{Instant, SystemTime},
};

use super::say;

const VERSION_FLAG: &str =
    r#"-s -w -X "github.com/cilium/cilium/pkg/version.ciliumVersion=1.20.2 test 2026-01-01T00:00:00+00:00""#;

/// The version of the go.mod: without it the server says v0.0.0, and Helm takes it for too old.
const SERVER_FLAGS: &str = "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
     -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36";

/// Where the built programs and the state of their runs are.
pub fn directory() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent");
    target.join("real-parts")
}

pub fn control_plane() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("control-plane", SERVER_FLAGS))
}

pub fn cilium_agent() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("cilium-agent", VERSION_FLAG))
}

fn build(program: &str, ldflags: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(program);
    let out = directory().join(program);
    fs::create_dir_all(directory()).expect("make target/real-parts");
    // One lock for both: two cold Go builds at once take three times as long.
    let lock = File::create(directory().join("build.lock")).expect("make the build lock");
    lock.lock().expect("lock target/real-parts");
    let sources = newest(&source).expect("read the Go sources");
    let flags_of_it = directory().join(format!("{program}.flags"));
    let as_asked = fs::read_to_string(&flags_of_it).is_ok_and(|flags| flags == ldflags);
    if as_asked && modified(&out).is_ok_and(|built| built >= sources) {
        return out;
    }
    require_go();
    say(&format!(
        "building {program} with Go: seconds when cached, 5 minutes and 250 MB of downloads when not"
    ));
    let start = Instant::now();
    // Other flags mean a cold build, so they are the same for everybody.
    let built = Command::new("go")
        .args(["build", "-trimpath", "-ldflags", ldflags, "-o"])
        .arg(&out)
        .arg(".")
        .current_dir(&source)
        .env("CGO_ENABLED", "0")
        .output()
        .expect("run go build");
    assert!(
        built.status.success(),
        "go build of {program} failed:\n{}",
        String::from_utf8_lossy(&built.stderr)
    );
    // Go leaves a file alone that would not change.
    let file = File::options().append(true).open(&out).expect("open what go built");
    file.set_modified(SystemTime::now()).expect("date what go built");
    fs::write(&flags_of_it, ldflags).expect("write the flags down");
    say(&format!("built {program} in {:.0?}", start.elapsed()));
    out
}

fn require_go() {
    let found = match Command::new("go").args(["env", "GOVERSION"]).output() {
        Ok(out) => String::from_utf8_lossy(&out.stdout).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    let minor =
        found.strip_prefix("go1.").and_then(|rest| rest.split(['.', 'r', '-']).next()?.parse::<u32>().ok());
    assert!(
        minor.is_some_and(|minor| minor >= 26),
        "the feature real-parts needs Go 1.26 or newer; found: {found}"
    );
}

fn newest(directory: &Path) -> io::Result<SystemTime> {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| ["go", "mod", "sum"].iter().any(|known| extension == *known))
        {
            newest = newest.max(modified(&path)?);
        }
    }
    Ok(newest)
}

fn modified(path: &Path) -> io::Result<SystemTime> {
    fs::metadata(path)?.modified()
}
