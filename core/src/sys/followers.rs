//! Those who are told of something, for as long as they live.

use std::sync::{Arc, Weak};

use crate::sys::mutex::Mutex;

/// A list that keeps nobody alive.
#[derive(Debug)]
pub(crate) struct Followers<T: ?Sized>(Mutex<Vec<Weak<T>>>);

impl<T: ?Sized> Default for Followers<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: ?Sized> Followers<T> {
    pub(crate) fn add(&self, follower: Weak<T>) {
        let mut followers = self.0.lock();
        followers.retain(|follower| follower.strong_count() > 0);
        followers.push(follower);
    }

    /// Returns those who live, to be told outside of every lock.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
