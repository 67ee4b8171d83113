//! Damaged inputs for the four readers of what others wrote: the message of an Event, a snapshot, the agent's answers,
//! the ledger. Each has its corpus, whose files are run as they are and then damaged from a seed.
//!
//! `FUZZ_CASES=100000 cargo test --test fuzz` runs so many damaged inputs a reader, `FUZZ_SEED=7` other ones. An input
//! that breaks a rule is made smaller, shown, and kept as a file that can be put into the corpus.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy.toml allows them in functions that are tests, and these serve nothing else"
)]
#![allow(missing_docs, unreachable_pub, reason = "nothing outside uses a test")]

mod agent;
mod damage;
mod ledger;
mod message;
mod reader;
mod snapshot;

use reader::Reader;

#[test]
fn a_message_gives_an_address_only_by_its_whole_clause() {
    Reader { name: "message", words: message::WORDS, check: message::check }.run();
}

#[test]
fn a_snapshot_that_loads_is_judged_the_same_once_saved_and_one_that_does_not_says_where() {
    Reader { name: "snapshot", words: snapshot::WORDS, check: snapshot::check }.run();
}

#[test]
fn an_answer_of_the_agent_gives_nothing_that_is_not_in_it() {
    Reader { name: "agent", words: agent::WORDS, check: agent::check }.run();
}

#[test]
fn a_ledger_is_read_as_it_was_written_or_the_bounds_start_closed() {
    Reader { name: "ledger", words: ledger::WORDS, check: ledger::check }.run();
}
