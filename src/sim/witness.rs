//! Somebody who looks on at the very instant when something happens, for tests that must know the truth.
//!
//! Must not know what happens.

use std::fmt;
use std::sync::{Arc, Mutex};

use super::clock::lock;

type Look<T> = Arc<dyn Fn(&T) + Send + Sync>;

/// A place for one onlooker; nobody is there at the start.
pub(crate) struct Witness<T>(Mutex<Option<Look<T>>>);

impl<T> Witness<T> {
    /// Has somebody look on from now on.
    pub(crate) fn set(&self, look: impl Fn(&T) + Send + Sync + 'static) {
        *lock(&self.0) = Some(Arc::new(look));
    }

    /// Shows what happens.
    pub(crate) fn show(&self, what: &T) {
        let look = lock(&self.0).clone();
        if let Some(look) = look {
            look(what);
        }
    }
}

impl<T> Default for Witness<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> fmt::Debug for Witness<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}
