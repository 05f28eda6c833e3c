//! Calls a JavaScript function from any thread.
//!
//! napi-rs has the same, without two things that are needed here. It keeps its event loop alive for all its life or
//! never, while a queue does so as long as a call is pending. And it cannot pass the resource that `async_hooks` show
//! for it, which tells test runners whether it keeps the process alive.
//!
//! States: open, then gone. It is gone with its last owner, or with its environment, whichever is first. The
//! environment may end while another thread calls, so other threads use the handle under the lock only, and the
//! finalizer takes it under the lock before Node frees it.
#![allow(unsafe_code, reason = "Node-API")]

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use napi::bindgen_prelude::{Function, Object};
use napi::{Env, JsValue, check_status, sys};

/// A JavaScript function that any thread may call. It drops with the last handle on it.
#[derive(Debug)]
pub(crate) struct Wake(Arc<Mutex<Option<Handle>>>);

/// Node's handle. It is valid until its finalizer has run.
#[derive(Clone, Copy, Debug)]
struct Handle(sys::napi_threadsafe_function);

// SAFETY: Node lets any thread call and release a thread-safe function. `keep_alive` is for the thread of its
// environment, and takes the `Env` as a proof.
unsafe impl Send for Handle {}

impl Wake {
    /// Makes a thread-safe function that calls `target`. At first it does not keep the process alive. `resource` stands
    /// for it in `async_hooks`.
    pub(crate) fn new(env: Env, target: Function<'_, (), ()>, resource: Object<'_>) -> napi::Result<Self> {
        let name = env.create_string("redlock-rs")?;
        let owner = Arc::new(Mutex::new(None));
        let finalizer = Arc::into_raw(Arc::clone(&owner)).cast_mut().cast::<c_void>();
        let mut handle = ptr::null_mut();
        // SAFETY: all values are of this environment and alive. `finalizer` is an owner of its own, and `finalize`
        // takes it back.
        let status = unsafe {
            sys::napi_create_threadsafe_function(
                env.raw(),
                target.raw(),
                resource.raw(),
                name.raw(),
                0, // the length of its queue is not limited
                1, // this owner
                finalizer,
                Some(finalize),
                ptr::null_mut(),
                None,
                &raw mut handle,
            )
        };
        if status != sys::Status::napi_ok {
            // SAFETY: Node did not take it.
            drop(unsafe { Arc::from_raw(finalizer.cast::<Mutex<Option<Handle>>>()) });
        }
        check_status!(status, "cannot make the function that wakes the event loop")?;
        *locked(&owner) = Some(Handle(handle));
        let wake = Self(owner);
        wake.keep_alive(env, false)?;
        Ok(wake)
    }

    /// Calls the function soon, on its own thread. Does nothing once the environment has ended.
    pub(crate) fn call(&self) {
        let mut owner = locked(&self.0);
        let Some(Handle(handle)) = *owner else { return };
        // SAFETY: the handle is valid, because its finalizer takes it under this lock.
        let status = unsafe {
            sys::napi_call_threadsafe_function(handle, ptr::null_mut(), sys::ThreadsafeFunctionCallMode::nonblocking)
        };
        // That was a release too: Node may free the handle now.
        if status == sys::Status::napi_closing {
            *owner = None;
        }
    }

    /// Keeps the event loop alive, or does so no longer.
    pub(crate) fn keep_alive(&self, env: Env, alive: bool) -> napi::Result<()> {
        let Some(Handle(handle)) = *locked(&self.0) else { return Ok(()) };
        // SAFETY: the handle is valid, because its finalizer runs on this thread, of which the `Env` is.
        let status = unsafe {
            if alive {
                sys::napi_ref_threadsafe_function(env.raw(), handle)
            } else {
                sys::napi_unref_threadsafe_function(env.raw(), handle)
            }
        };
        check_status!(status, "cannot set whether the event loop is kept alive")
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        let mut owner = locked(&self.0);
        let Some(Handle(handle)) = owner.take() else { return };
        // SAFETY: the handle is valid, because its finalizer waits for this lock before Node frees it.
        let _ = unsafe { sys::napi_release_threadsafe_function(handle, sys::ThreadsafeFunctionReleaseMode::release) };
    }
}

/// Runs on the thread of the environment before Node frees the handle.
extern "C" fn finalize(_env: sys::napi_env, owner: *mut c_void, _context: *mut c_void) {
    // SAFETY: `new` gave it to Node, which calls this once.
    let owner = unsafe { Arc::from_raw(owner.cast::<Mutex<Option<Handle>>>()) };
    *locked(&owner) = None;
}

fn locked(owner: &Mutex<Option<Handle>>) -> MutexGuard<'_, Option<Handle>> {
    owner.lock().unwrap_or_else(PoisonError::into_inner)
}
