//! What the watchdog tells, as events: their forms, the bounded ring that keeps the latest, and the state that they add up to.
//!
//! One event is told once and read by all: the HTTP stream, the status page, the verb `events`. This module must not know
//! who tells, nor how it is sent.

mod docs;
mod envelope;
mod event;
mod hub;
mod position;
mod reader;
mod state;

pub use docs::{document, schemas};
pub use envelope::CloudEvent;
pub use event::{
    About, Acted, Acting, CheckChanged, CheckState, Event, EventKind, Gap, GapReason, Heartbeat, HeldBack,
    Judged, Over, Started, Stopping,
};
pub use hub::{Hub, KEPT_BYTES, KEPT_EVENTS};
pub use position::{Boot, Position};
pub use reader::{Item, Reader, Start};
pub use state::{ACTS as ACTS_SHOWN, ActView, CheckView, State, Step, Wait, WedgeView};

#[cfg(test)]
mod tests;
