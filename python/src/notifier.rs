//! The notifier: a descriptor that wakes an event loop. An eventfd on Linux, a pair of sockets elsewhere.
//!
//! Any thread may notify a [`Notifier`]. It never blocks, and wakes a thread that polls its descriptor, which is readable
//! from a notification until the next reset, and open until the notifier is dropped.

#[cfg(not(target_os = "linux"))]
pub(crate) use portable::Notifier;
#[cfg(target_os = "linux")]
pub(crate) use system::Notifier;

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd, RawFd};

    use rustix::event::{EventfdFlags, eventfd};

    #[derive(Debug)]
    pub(crate) struct Notifier(OwnedFd);

    impl Notifier {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        pub(crate) fn descriptor(&self) -> RawFd {
            self.0.as_raw_fd()
        }

        pub(crate) fn notify(&self) {
            // A full counter refuses the write, but is readable already.
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        }

        pub(crate) fn reset(&self) {
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use std::io::{self, Read, Write};
    use std::os::fd::{AsRawFd, RawFd};
    use std::os::unix::net::UnixStream;

    #[derive(Debug)]
    pub(crate) struct Notifier {
        reader: UnixStream,
        writer: UnixStream,
    }

    impl Notifier {
        pub(crate) fn new() -> io::Result<Self> {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            writer.set_nonblocking(true)?;
            Ok(Self { reader, writer })
        }

        pub(crate) fn descriptor(&self) -> RawFd {
            self.reader.as_raw_fd()
        }

        pub(crate) fn notify(&self) {
            // A full buffer refuses the write, but is readable already.
            let _ = (&self.writer).write(&[1]);
        }

        pub(crate) fn reset(&self) {
            while matches!((&self.reader).read(&mut [0; 64]), Ok(64)) {}
        }
    }
}
