//! Runs all scenarios at the same time. They wait far more than they compute, and libtest runs only as many tests at
//! once as there are cores: one after the other they would take minutes.
//!
//! Each scenario is still a test of its own name; a filter on the command line starts only what it matches.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

pub(crate) type Scenario = fn() -> Pin<Box<dyn Future<Output = ()>>>;
type Outcome = Result<(), Box<dyn Any + Send>>;

/// So many clusters with their daemons fit on two cores beside each other without being slow.
const AT_ONCE: usize = 40;

static OUTCOMES: LazyLock<Mutex<HashMap<&'static str, Receiver<Outcome>>>> =
    LazyLock::new(|| Mutex::new(start(crate::contents())));

/// Waits for a scenario's end, and fails as it did.
pub(crate) fn outcome(name: &str) {
    let receiver = OUTCOMES.lock().expect("no test panics while it holds this").remove(name);
    let outcome = receiver.expect("each scenario is asked for once").recv().expect("an outcome");
    if let Err(panic) = outcome {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        panic!("{}", text.unwrap_or("the scenario panicked"));
    }
}

fn start(contents: Vec<(&'static str, Scenario)>) -> HashMap<&'static str, Receiver<Outcome>> {
    let filters: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| {
        filters.is_empty() || filters.iter().any(|filter| crate::test_name(name).contains(filter))
    };
    let mut outcomes = HashMap::new();
    let mut queue = VecDeque::new();
    for (name, scenario) in contents {
        let (sender, receiver) = channel();
        outcomes.insert(name, receiver);
        if wanted(name) {
            queue.push_back((name, scenario, sender));
        }
    }
    let queue = Arc::new(Mutex::new(queue));
    for _ in 0..AT_ONCE {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            loop {
                let next = queue.lock().expect("no scenario runs while this is held").pop_front();
                let Some(next) = next else { return };
                run(next);
            }
        });
    }
    outcomes
}

fn run((name, scenario, sender): (&'static str, Scenario, Sender<Outcome>)) {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(scenario())));
        // Nobody may be waiting: the test was skipped.
        drop(sender.send(outcome));
    });
    drop(thread.expect("a thread").join());
}
