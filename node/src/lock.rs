//! One lock object.

use std::sync::Arc;

use napi::bindgen_prelude::Either;
use napi_derive::napi;

use crate::convert::{ms, number};
use crate::error::Failure;

/// One holder of one lock. Collected while it holds the lock, it releases it.
#[derive(Debug)]
#[napi]
pub struct Holder(pub(crate) Arc<redlock::bindings::lock_object::Holder>);

#[napi]
impl Holder {
    /// The name; bytes that are no UTF-8 are replaced.
    #[napi(catch_unwind)]
    pub fn name(&self) -> String {
        String::from_utf8_lossy(self.0.name()).into_owned()
    }

    /// The fence of the current acquisition, or of the one that was lost.
    #[napi(catch_unwind)]
    pub fn fence(&self) -> Either<i64, Failure> {
        match self.0.fence() {
            Ok(fence) => Either::A(number(fence)),
            Err(error) => Either::B(error.into()),
        }
    }

    /// Whether the lock is held now.
    #[napi(catch_unwind)]
    pub fn held(&self) -> bool {
        self.0.held()
    }

    /// How long the lock stays valid, in milliseconds.
    #[napi(catch_unwind)]
    pub fn remaining(&self) -> f64 {
        ms(self.0.remaining())
    }

    /// Why the lock is not held; null if it is.
    #[napi(catch_unwind)]
    pub fn check(&self) -> Option<Failure> {
        self.0.check().err().map(Failure::from)
    }
}
