//! What Linux says of a process's memory. Must not know what is measured.

/// A line of `/proc/PID/status`, such as `VmRSS` or `VmHWM`, in KiB; `None`: there is no such process, or it has ended.
pub(crate) fn kib(process: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok()
}
