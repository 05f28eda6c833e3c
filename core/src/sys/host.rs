//! What is the name of this machine?

/// Returns the host name, as the operating system tells it.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub(crate) fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the host name, if the environment has it.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(crate) fn name() -> String {
    let named = ["COMPUTERNAME", "HOSTNAME"].iter().find_map(|variable| std::env::var(variable).ok());
    named.unwrap_or_else(|| "localhost".to_owned())
}
