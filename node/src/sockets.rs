//! Lets Node's event loop watch the sockets of the engine.
//!
//! Node-API gives the loop, which is libuv's, and its functions are found in the program. Deno and Bun have other loops,
//! so the engine's background watches all sockets there.
//!
//! States: *watching*, then *closing*, then *closed*, when libuv does not use the handle any more. It is closed with its
//! owner, or with its environment, whichever is first. All of it happens on the loop's thread.
#![allow(unsafe_code, reason = "Node-API and libuv")]

use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute_copy;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use napi::bindgen_prelude::{Function, JsObjectValue, Object};
use napi::{Env, JsValue, check_status, sys};

/// Of `uv_handle_type`.
const UV_POLL: c_int = 8;
/// Of `uv_poll_event`.
const UV_READABLE: c_int = 1;

/// The functions of libuv that are used here. All are as old as libuv 1.0.
#[derive(Clone, Copy)]
struct Libuv {
    handle_size: unsafe extern "C" fn(c_int) -> usize,
    poll_init: unsafe extern "C" fn(*mut sys::uv_loop_s, *mut c_void, c_int) -> c_int,
    poll_start: unsafe extern "C" fn(*mut c_void, c_int, unsafe extern "C" fn(*mut c_void, c_int, c_int)) -> c_int,
    unref: unsafe extern "C" fn(*mut c_void),
    close: unsafe extern "C" fn(*mut c_void, unsafe extern "C" fn(*mut c_void)),
}

/// A watched descriptor.
#[derive(Debug)]
pub(crate) struct Sockets(*mut State);

struct State {
    libuv: Libuv,
    /// Memory for libuv's handle.
    handle: Box<[u128]>,
    env: sys::napi_env,
    turn: Box<dyn Fn() -> bool>,
    /// The function that takes what is ready, and its context. Both are gone once this is closing.
    drain: sys::napi_ref,
    context: sys::napi_async_context,
    hook: sys::napi_async_cleanup_hook_handle,
    /// Whether a [`Sockets`] points here.
    is_owned: bool,
    is_closing: bool,
    is_closed: bool,
}

impl Libuv {
    /// Finds the functions, if this program is Node.
    fn find(env: Env) -> Option<Self> {
        let process = env.get_global().ok()?.get_named_property::<Object>("process").ok()?;
        let versions = process.get_named_property::<Object>("versions").ok()?;
        // Bun has the names, and ends the program if one is called.
        if ["bun", "deno"].iter().any(|other| versions.has_named_property(other).unwrap_or(true)) {
            return None;
        }
        // SAFETY: these are the types of the functions in every libuv 1.
        unsafe {
            Some(Self {
                handle_size: function(c"uv_handle_size")?,
                poll_init: function(c"uv_poll_init")?,
                poll_start: function(c"uv_poll_start")?,
                unref: function(c"uv_unref")?,
                close: function(c"uv_close")?,
            })
        }
    }
}

/// Returns a function of this program, which is of type `F`.
unsafe fn function<F: Copy>(name: &CStr) -> Option<F> {
    // SAFETY: any name may be looked for, and the result is as large as any pointer to a function.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        (!found.is_null()).then(|| transmute_copy(&found))
    }
}

impl Sockets {
    /// Watches `fd`: while it is readable, takes a `turn`, and calls `drain` if that says that some calls are ready.
    /// `resource` stands for it in `async_hooks`. `None` if it cannot be watched.
    pub(crate) fn watch(
        env: Env,
        fd: RawFd,
        turn: impl Fn() -> bool + 'static,
        drain: &Function<'_, (), ()>,
        resource: &Object<'_>,
    ) -> napi::Result<Option<Self>> {
        let Some(libuv) = Libuv::find(env) else { return Ok(None) };
        let name = env.create_string("redlock-rs")?;
        let (raw, mut uv_loop) = (env.raw(), ptr::null_mut());
        // SAFETY: the environment is alive, and this is its thread. The handle has the size that libuv wants, and stays
        // where it is until libuv has closed it.
        unsafe {
            check_status!(sys::napi_get_uv_event_loop(raw, &raw mut uv_loop))?;
            let size = (libuv.handle_size)(UV_POLL).div_ceil(size_of::<u128>());
            let state = Box::into_raw(Box::new(State {
                libuv,
                handle: vec![0; size].into_boxed_slice(),
                env: raw,
                turn: Box::new(turn),
                drain: ptr::null_mut(),
                context: ptr::null_mut(),
                hook: ptr::null_mut(),
                is_owned: true,
                is_closing: false,
                is_closed: false,
            }));
            let handle = handle(state);
            if (libuv.poll_init)(uv_loop, handle, fd) != 0 {
                drop(Box::from_raw(state));
                return Ok(None);
            }
            // From here on its drop closes the handle.
            let sockets = Self(state);
            handle.cast::<*mut State>().write(state);
            (libuv.unref)(handle);
            check_status!(sys::napi_create_reference(raw, drain.raw(), 1, &raw mut (*state).drain))?;
            check_status!(sys::napi_async_init(raw, resource.raw(), name.raw(), &raw mut (*state).context))?;
            check_status!(sys::napi_add_async_cleanup_hook(raw, Some(end), state.cast(), &raw mut (*state).hook))?;
            Ok(((libuv.poll_start)(handle, UV_READABLE, readable) == 0).then_some(sockets))
        }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        // SAFETY: the state is there for as long as it is owned.
        unsafe {
            (*self.0).is_owned = false;
            close(self.0);
        }
    }
}

/// Returns the handle of a state.
unsafe fn handle(state: *mut State) -> *mut c_void {
    // SAFETY: the state is there, as the caller says.
    unsafe { (*state).handle.as_mut_ptr().cast() }
}

/// Returns the state of a handle.
unsafe fn state(handle: *mut c_void) -> *mut State {
    // SAFETY: the first field of every handle is for its user, who has put the state there.
    unsafe { handle.cast::<*mut State>().read() }
}

/// Begins to close the handle, unless that has begun. Frees a closed state that nobody owns.
unsafe fn close(state: *mut State) {
    // SAFETY: the state is there, as the caller says, and this is the thread of its environment. Node-API refuses null.
    unsafe {
        if (*state).is_closed {
            if !(*state).is_owned {
                drop(Box::from_raw(state));
            }
        } else if !(*state).is_closing {
            (*state).is_closing = true;
            sys::napi_delete_reference((*state).env, (*state).drain);
            sys::napi_async_destroy((*state).env, (*state).context);
            ((*state).libuv.close)(handle(state), closed);
        }
    }
}

/// Libuv does not use the handle any more.
unsafe extern "C" fn closed(handle: *mut c_void) {
    // SAFETY: the state is there until it is closed. Node waits for the removal of the hook before it ends the
    // environment.
    unsafe {
        let state = state(handle);
        (*state).is_closed = true;
        sys::napi_remove_async_cleanup_hook((*state).hook);
        close(state);
    }
}

/// The environment ends.
unsafe extern "C" fn end(_hook: sys::napi_async_cleanup_hook_handle, state: *mut c_void) {
    // SAFETY: Node calls this once, and not after the hook was removed, which is before the state is freed.
    unsafe { close(state.cast()) }
}

/// The descriptor is readable.
unsafe extern "C" fn readable(handle: *mut c_void, _status: c_int, _events: c_int) {
    // SAFETY: libuv calls this while the handle is not closing, on the thread of the environment.
    unsafe {
        let state = state(handle);
        // A panic must not reach libuv.
        let is_ready = catch_unwind(AssertUnwindSafe(|| ((*state).turn)())).unwrap_or(true);
        if is_ready && !(*state).is_closing {
            call((*state).env, (*state).context, (*state).drain);
        }
    }
}

/// Calls a function of JavaScript. An exception in it is an uncaught one.
unsafe fn call(env: sys::napi_env, context: sys::napi_async_context, function: sys::napi_ref) {
    let (mut scope, mut global, mut target) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let (mut result, mut exception) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the environment is alive, and this is its thread.
    unsafe {
        if sys::napi_open_handle_scope(env, &raw mut scope) != sys::Status::napi_ok {
            return;
        }
        sys::napi_get_global(env, &raw mut global);
        sys::napi_get_reference_value(env, function, &raw mut target);
        let called = sys::napi_make_callback(env, context, global, target, 0, ptr::null(), &raw mut result);
        if called == sys::Status::napi_pending_exception
            && sys::napi_get_and_clear_last_exception(env, &raw mut exception) == sys::Status::napi_ok
        {
            sys::napi_fatal_exception(env, exception);
        }
        sys::napi_close_handle_scope(env, scope);
    }
}
