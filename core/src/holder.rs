//! A lock as an object: one holder. Hidden: for the bindings.
#![allow(missing_docs, unused_variables, clippy::todo, clippy::needless_pass_by_value)]

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::lock::Lock;

#[derive(Debug)]
pub struct Holder(());

impl Holder {
    pub fn new(lock: Lock) -> Result<Arc<Self>, Error> { todo!() }
    #[must_use] pub fn fresh(&self) -> Arc<Self> { todo!() }
    #[must_use] pub fn name(&self) -> &[u8] { todo!() }
    pub fn fence(&self) -> Result<u64, Error> { todo!() }
    #[must_use] pub fn held(&self) -> bool { todo!() }
    #[must_use] pub fn remaining(&self) -> Duration { todo!() }
    pub fn check(&self) -> Result<(), Error> { todo!() }
    pub fn acquire<E>(self: &Arc<Self>, timeout: Option<Option<Duration>>, interrupted: impl FnMut() -> Result<(), E>) -> Result<Result<(), Error>, E> { todo!() }
    pub fn extend<E>(&self, ttl: Option<Duration>, interrupted: impl FnMut() -> Result<(), E>) -> Result<Result<(), Error>, E> { todo!() }
    pub fn release<E>(&self, interrupted: impl FnMut() -> Result<(), E>) -> Result<Result<(), Error>, E> { todo!() }
    pub fn leave<E>(&self, interrupted: impl FnMut() -> Result<(), E>) -> Result<Result<(), Error>, E> { todo!() }
}
