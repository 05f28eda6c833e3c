//! The program `redlock`, which is a crate of its own.

use std::env;
use std::ffi::OsString;

use napi_derive::napi;

use crate::host;

/// Runs the program `redlock` with these arguments, and ends the process with its exit status.
#[napi(ts_return_type = "never")]
pub fn command_line(args: Vec<String>) {
    host::leave_signals();
    host::pass_on_descriptors();
    let name = OsString::from("redlock");
    let status = redlock_cli::run([name].into_iter().chain(exact(&args, env::args_os().collect())));
    // SAFETY: it ends the process. At `exit`, Node would give the terminal back the modes that it had before the command,
    // and take V8 apart under the threads that still use it.
    #[allow(unsafe_code, reason = "there is no safe way to leave out what Node does at the end")]
    unsafe {
        libc::_exit(status)
    }
}

/// Returns the arguments as the process got them, because those of Node have lost bytes that are not UTF-8. `all` are
/// those of the process, Node's own first; it has none on systems that do not tell a library.
fn exact(given: &[String], mut all: Vec<OsString>) -> Vec<OsString> {
    let own = all.split_off(all.len().saturating_sub(given.len()));
    let is_same = own.len() == given.len() && own.iter().zip(given).all(|(own, given)| own.to_string_lossy() == *given);
    if is_same { own } else { given.iter().map(OsString::from).collect() }
}
