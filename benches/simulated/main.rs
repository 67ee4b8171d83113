//! What the watchdog does and costs in time that is simulated: the whole watchdog against the simulated cluster in memory.
//!
//! `cargo bench --bench simulated` prints Markdown tables; the names of sections (`latency`, `mass-leak`, `cluster`,
//! `side-by-side`, `month`) run only those. Times and counts are those of the paused clock: the same on each machine. Each section fails if
//! what it measured cannot be.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, reason = "a benchmark")]
#![allow(unreachable_pub, reason = "nothing outside uses a benchmark")]

mod baseline;
#[path = "../support/cases.rs"]
mod cases;
mod cluster;
#[path = "../../tests/support/cores.rs"]
mod cores;
mod corpus;
#[path = "../../tests/support/in_memory.rs"]
mod in_memory;
mod latency;
mod mass_leak;
#[path = "../support/memory.rs"]
mod memory;
mod month;
mod numbers;
mod side_by_side;
mod stage;
mod wrong_acts;

use std::time::Instant;

fn main() {
    if month::alone() {
        return;
    }
    let sections: [(&str, fn()); 5] = [
        ("latency", latency::section),
        ("mass-leak", mass_leak::section),
        ("cluster", cluster::section),
        ("side-by-side", side_by_side::section),
        ("month", month::section),
    ];
    // `cargo bench` passes flags for the standard harness.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let unknown = wanted.iter().find(|word| sections.iter().all(|(name, _)| name != word));
    assert_eq!(unknown, None, "there is no such section");
    for (name, section) in sections {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            let began = Instant::now();
            println!("## {name}\n");
            section();
            println!("({name} took {:.1} s of real time)\n", began.elapsed().as_secs_f64());
        }
    }
}
