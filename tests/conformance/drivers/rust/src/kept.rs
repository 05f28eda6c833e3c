//! The objects behind handles.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use serde_json::{Value, json};

use crate::json::Failure;

/// Values by their handles, and the error for an unknown handle.
pub(crate) struct Kept<T>(&'static str, Mutex<BTreeMap<u64, T>>);

impl<T> Kept<T> {
    pub(crate) const fn new(missing: &'static str) -> Self {
        Self(missing, Mutex::new(BTreeMap::new()))
    }

    pub(crate) fn put(&self, handle: u64, value: T) -> Value {
        self.all().insert(handle, value);
        json!({"handle": handle})
    }

    pub(crate) fn take(&self, handle: u64) -> Result<T, Failure> {
        self.all().remove(&handle).ok_or(self.0.into())
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, T>> {
        self.1.lock().expect("no poison")
    }
}

impl<T: Clone> Kept<T> {
    pub(crate) fn of(&self, handle: u64) -> Result<T, Failure> {
        self.all().get(&handle).cloned().ok_or(self.0.into())
    }
}
