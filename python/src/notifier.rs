//! The descriptor that wakes whoever waits for results: an eventfd on Linux, a pair of sockets elsewhere.

use std::os::fd::{AsRawFd, RawFd};

#[cfg(not(target_os = "linux"))]
use portable as system;

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use rustix::event::{EventfdFlags, eventfd};

    #[derive(Debug)]
    pub(super) struct Ends(OwnedFd);

    impl Ends {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
        }

        pub(super) fn reader(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        pub(super) fn ring(&self) {
            // A full counter refuses, and has been heard by then.
            let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
        }

        pub(super) fn silence(&self) {
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use std::io::{self, Read, Write};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;

    #[derive(Debug)]
    pub(super) struct Ends {
        reader: UnixStream,
        writer: UnixStream,
    }

    impl Ends {
        pub(super) fn new() -> io::Result<Self> {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            writer.set_nonblocking(true)?;
            Ok(Self { reader, writer })
        }

        pub(super) fn reader(&self) -> BorrowedFd<'_> {
            self.reader.as_fd()
        }

        pub(super) fn ring(&self) {
            // A full buffer refuses, and has been heard by then.
            let _ = (&self.writer).write(&[1]);
        }

        pub(super) fn silence(&self) {
            while matches!((&self.reader).read(&mut [0; 64]), Ok(64)) {}
        }
    }
}

/// Rung from any thread, heard by polling [`Bell::descriptor`]. Never blocks.
#[derive(Debug)]
pub(crate) struct Bell(system::Ends);

impl Bell {
    pub(crate) fn new() -> std::io::Result<Self> {
        system::Ends::new().map(Self)
    }

    /// Readable from a ring to the next silence; stays open for as long as the bell is there.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.reader().as_raw_fd()
    }

    pub(crate) fn ring(&self) {
        self.0.ring();
    }

    pub(crate) fn silence(&self) {
        self.0.silence();
    }
}
