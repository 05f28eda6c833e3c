//! One lock object.

use std::sync::Arc;

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use redlock::bindings::lock_object::LockObject;

use crate::convert::{ms, number};
use crate::error::Failure;

/// One holder of one lock. It releases the lock if it is garbage-collected while it holds the lock.
#[derive(Debug)]
#[napi]
pub struct Holder(pub(crate) Arc<LockObject>);

#[napi]
impl Holder {
    /// Returns the name, with invalid UTF-8 replaced.
    #[napi(catch_unwind)]
    pub fn name(&self) -> String {
        String::from_utf8_lossy(self.0.name()).into_owned()
    }

    /// Returns the fence of the current acquisition, even if it is lost.
    #[napi(catch_unwind)]
    pub fn fence(&self) -> Either<i64, Failure> {
        match self.0.fence() {
            Ok(fence) => Either::A(number(fence)),
            Err(error) => Either::B(error.into()),
        }
    }

    /// Returns whether the lock is held at this moment.
    #[napi(catch_unwind)]
    pub fn held(&self) -> bool {
        self.0.held()
    }

    /// Returns for how long the lock is still valid, in milliseconds; zero if it is not held.
    #[napi(catch_unwind)]
    pub fn remaining(&self) -> f64 {
        ms(self.0.remaining())
    }

    /// Returns the reason why the lock is not held; null if it is held.
    #[napi(catch_unwind)]
    pub fn check(&self) -> Option<Failure> {
        self.0.check().err().map(Failure::from)
    }
}
