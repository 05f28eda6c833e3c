//! Which limit of the system does an error tell of?

use std::io;

#[cfg(any(target_os = "linux", target_os = "macos"))]
use rustix::io::Errno;

/// Returns what the system has too few of, and what to do.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub(crate) fn exhausted(error: &io::Error) -> Option<&'static str> {
    match Errno::from_raw_os_error(error.raw_os_error()?) {
        Errno::MFILE => Some("this process has too many open files; raise the limit (ulimit -n)"),
        Errno::NFILE => Some("the system has too many open files; raise its limit (fs.file-max)"),
        _ => None,
    }
}

/// The numbers of other systems are not known here.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(crate) fn exhausted(_: &io::Error) -> Option<&'static str> {
    None
}
