//! What the process costs, under the names that every exporter has. Read when it is asked for.
//!
//! It knows `/proc` alone. What cannot be read, and on a platform without `/proc` all but the start, is absent.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Reads the usage of this process at each scrape.
#[derive(Debug)]
pub(super) struct Process {
    /// Seconds since 1970-01-01 UTC.
    start: f64,
}

/// What the process has taken from the system.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Usage {
    resident_bytes: Option<u64>,
    virtual_bytes: Option<u64>,
    cpu_seconds: Option<f64>,
    threads: Option<i64>,
    open_fds: Option<u64>,
    max_fds: Option<u64>,
}

impl Process {
    /// Takes now as the start of the process.
    pub(super) fn starting_now() -> Self {
        Self { start: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() }
    }
}

impl Collector for Process {
    fn encode(&self, mut to: DescriptorEncoder) -> Result<(), fmt::Error> {
        let Usage { resident_bytes, virtual_bytes, cpu_seconds, threads, open_fds, max_fds } = Usage::now();
        put(
            &mut to,
            "process_start_time",
            "Start of the process, in seconds since 1970-01-01 UTC",
            Some(&Unit::Seconds),
            Some(ConstGauge::new(self.start)),
        )?;
        put(
            &mut to,
            "process_cpu",
            "Time that the process spent on a CPU, in user and in system mode, in seconds",
            Some(&Unit::Seconds),
            cpu_seconds.map(ConstCounter::new),
        )?;
        put(
            &mut to,
            "process_resident_memory",
            "Memory of the process that is in RAM, in bytes",
            Some(&Unit::Bytes),
            resident_bytes.map(gauge),
        )?;
        put(
            &mut to,
            "process_virtual_memory",
            "Address space of the process, in bytes",
            Some(&Unit::Bytes),
            virtual_bytes.map(gauge),
        )?;
        put(&mut to, "process_open_fds", "File descriptors that are open", None, open_fds.map(gauge))?;
        put(
            &mut to,
            "process_max_fds",
            "File descriptors that may be open; absent without a limit",
            None,
            max_fds.map(gauge),
        )?;
        put(&mut to, "process_threads", "Threads of the process", None, threads.map(ConstGauge::new))
    }
}

fn put(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    metric: Option<impl EncodeMetric>,
) -> Result<(), fmt::Error> {
    metric.map_or(Ok(()), |metric| {
        metric.encode(to.encode_descriptor(name, help, unit, metric.metric_type())?)
    })
}

fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

impl Usage {
    #[cfg(target_os = "linux")]
    fn now() -> Self {
        use procfs::process::{LimitValue, Process};

        let Ok(process) = Process::myself() else {
            return Self::default();
        };
        let stat = process.stat().ok();
        let ticks = |ticks: u64| {
            // A tick is 10 ms: an f64 is exact for longer than any process lives.
            #[allow(clippy::cast_precision_loss, reason = "see above")]
            let seconds = ticks as f64 / procfs::ticks_per_second() as f64;
            seconds
        };
        let max_fds = process.limits().ok().and_then(|limits| match limits.max_open_files.soft_limit {
            LimitValue::Value(limit) => Some(limit),
            LimitValue::Unlimited => None,
        });
        Self {
            resident_bytes: stat.as_ref().map(|stat| stat.rss.saturating_mul(procfs::page_size())),
            virtual_bytes: stat.as_ref().map(|stat| stat.vsize),
            cpu_seconds: stat.as_ref().map(|stat| ticks(stat.utime.saturating_add(stat.stime))),
            threads: stat.as_ref().map(|stat| stat.num_threads),
            open_fds: process.fd_count().ok().and_then(|count| u64::try_from(count).ok()),
            max_fds,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn now() -> Self {
        Self::default()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn usage_is_that_of_this_process() {
        const BALLAST: usize = 64 << 20;
        let before = Usage::now();
        let files: Vec<File> = (0..200).map(|_| File::open("/proc/self/stat").unwrap()).collect();
        let ballast = vec![1_u8; BALLAST];
        let after = Usage::now();
        // Only what this test holds is sure: others of this process open, close, allocate and free meanwhile.
        assert!((200..10_000).contains(&after.open_fds.unwrap()), "{after:?}");
        let resident = after.resident_bytes.unwrap();
        assert!(resident >= BALLAST as u64 && resident < 64 << 30, "{after:?}");
        assert!(after.virtual_bytes >= after.resident_bytes, "{after:?}");
        assert!(after.cpu_seconds >= before.cpu_seconds && after.cpu_seconds < Some(1e6), "{after:?}");
        assert!(after.threads.unwrap() >= 1, "{after:?}");
        assert!(after.max_fds.unwrap_or(u64::MAX) > after.open_fds.unwrap(), "{after:?}");
        drop((files, ballast));
    }
}
