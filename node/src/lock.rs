//! One lock object, by its number in the queue.

use std::sync::Arc;

use napi::bindgen_prelude::Either;
use napi_derive::napi;
use redlock::bindings::Pid;
use redlock::bindings::lock_object::LockObject;

use crate::calls::Calls;
use crate::client::{Names, Template};
use crate::convert::{ms, number};
use crate::error::Failure;

/// Makes the object `lock`, unless it exists. Its options are those of the template. `released` says whether there was
/// such an object, which `release` dropped.
#[napi(catch_unwind)]
pub fn make_lock(queue: i64, lock: i64, template: i64, names: Names, released: bool) -> napi::Result<()> {
    let calls = Calls::of(queue)?;
    if calls.find(lock).is_none() {
        calls.add(lock, Template::named(template, &names, released)?);
    }
    Ok(())
}

/// Has the end of a body release the present hold, if it was attached and has had no body. Returns whether it was so.
#[napi(catch_unwind)]
pub fn enter_attached(queue: i64, lock: i64) -> napi::Result<Either<bool, Failure>> {
    Ok(match object(queue, lock)?.enter_attached(Pid::now()) {
        Ok(goes_on) => Either::A(goes_on),
        Err(error) => Either::B(error.into()),
    })
}

/// Drops the object `lock` if it exists. If it is held, the lock stays held until the environment ends.
#[napi(catch_unwind)]
pub fn drop_lock(queue: i64, lock: i64) -> napi::Result<()> {
    let calls = Calls::of(queue)?;
    if let Some(hold) = calls.remove(lock).and_then(|object| object.abandon()) {
        calls.keep(hold);
    }
    Ok(())
}

/// Returns the names, each once and in the order of their bytes, with invalid UTF-8 replaced.
#[napi(catch_unwind)]
pub fn names(queue: i64, lock: i64) -> napi::Result<Vec<String>> {
    Ok(object(queue, lock)?.names().into_iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// Returns the slot of the current acquisition, even if it is lost; null without one, and for locks that have no slots.
#[napi(catch_unwind)]
pub fn slot(queue: i64, lock: i64) -> napi::Result<Option<u32>> {
    Ok(object(queue, lock)?.slot())
}

/// Returns the fence of the current acquisition, even if it is lost.
#[napi(catch_unwind)]
pub fn fence(queue: i64, lock: i64) -> napi::Result<Either<i64, Failure>> {
    Ok(match object(queue, lock)?.fence() {
        Ok(fence) => Either::A(number(fence)),
        Err(error) => Either::B(error.into()),
    })
}

/// Returns whether the lock is held at this moment.
#[napi(catch_unwind)]
pub fn held(queue: i64, lock: i64) -> napi::Result<bool> {
    Ok(object(queue, lock)?.held())
}

/// Returns for how long the lock is still valid, in milliseconds; zero if it is not held.
#[napi(catch_unwind)]
pub fn remaining(queue: i64, lock: i64) -> napi::Result<f64> {
    Ok(ms(object(queue, lock)?.remaining()))
}

/// How an acquire waited.
#[derive(Debug)]
#[napi(object, object_from_js = false)]
pub struct Waited {
    /// Whether others had the lock.
    pub contended: bool,
    /// How often it waited, also for nodes.
    pub waits: u32,
}

/// Returns how the acquire of the current hold waited, or how the last one did if it failed; null without either.
#[napi(catch_unwind)]
pub fn waited(queue: i64, lock: i64) -> napi::Result<Option<Waited>> {
    let waited = object(queue, lock)?.waited();
    Ok(waited.map(|waited| Waited { contended: waited.is_contended, waits: waited.waits }))
}

/// Returns the reason why the lock is not held; null if it is held.
#[napi(catch_unwind)]
pub fn check(queue: i64, lock: i64) -> napi::Result<Option<Failure>> {
    Ok(object(queue, lock)?.check().err().map(Failure::from))
}

pub(crate) fn object(queue: i64, lock: i64) -> napi::Result<Arc<LockObject>> {
    Calls::of(queue)?.object(lock)
}
