//! A mutex that cannot be poisoned, because nothing panics while it is locked.

use std::sync::MutexGuard;

use crate::texts::opaque;

/// A [`std::sync::Mutex`] for moments only.
#[derive(Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

// It would be locked for as long as its content is written.
opaque!(Mutex<T>);

impl<T> Mutex<T> {
    /// Makes one around `value`.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Locks it.
    ///
    /// # Panics
    ///
    /// If there was a panic while it was locked.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no panic while holding this")
    }

    /// Locks it, unless it is locked.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}
