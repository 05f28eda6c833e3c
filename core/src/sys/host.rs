//! The name of this machine.

/// Returns the host name, as the operating system tells it.
pub(crate) fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
