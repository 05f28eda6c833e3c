//! The completion queue. Hidden: for the bindings.
#![allow(missing_docs, unused_variables, clippy::todo, clippy::needless_pass_by_value)]

use std::sync::Arc;
use std::time::Duration;

use crate::client::Redlock;
use crate::error::Error;
use crate::holder::Holder;
use crate::inspect::NodeView;

#[derive(Debug)]
pub struct Queue(());

#[derive(Debug)]
pub enum Taken { Done, Views(Vec<NodeView>), Again, Gone }

impl Queue {
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self { todo!() }
    #[must_use] pub fn is_foreign(&self) -> bool { todo!() }
    pub fn acquire(&self, holder: &Arc<Holder>, timeout: Option<Option<Duration>>) -> Result<u64, Error> { todo!() }
    pub fn extend(&self, holder: &Arc<Holder>, ttl: Option<Duration>) -> Result<u64, Error> { todo!() }
    pub fn release(&self, holder: &Arc<Holder>) -> Result<u64, Error> { todo!() }
    pub fn leave(&self, holder: &Arc<Holder>) -> Result<u64, Error> { todo!() }
    pub fn inspect(&self, client: &Redlock, name: &[u8]) -> Result<u64, Error> { todo!() }
    pub fn watch(&self, holder: &Arc<Holder>) -> u64 { todo!() }
    pub fn cancel(&self, id: u64) { todo!() }
    #[must_use] pub fn drain(&self) -> Vec<u64> { todo!() }
    pub fn take(&self, id: u64) -> Result<Taken, Error> { todo!() }
}
