//! A socket, and who watches it: the background's runtime, or an event loop of the program.
//!
//! States:
//!
//! - *own*: the runtime on which it was made watches it;
//! - *lent*: an [`EventLoop`] watches it. It keeps no wakers: the loop tells its owner to read, and the owner takes it
//!   back to wait for room to write;
//! - *gone*: a change between the two failed, and it is closed.
//!
//! What may interrupt a change: nothing. The kernel reports to the new watcher what came before.

use std::fmt;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::{mem, net};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use crate::protocol::certificate::Validity;
use crate::sys::descriptor::of_socket;
use crate::sys::event_loop::{EventLoop, OnReadable, Registration};

/// A connected socket, over TCP or at a path.
#[derive(Debug)]
pub(crate) struct Socket(Io);

/// A stream to a server.
pub(crate) type Stream = Box<dyn Transport>;

/// What a stream to a server can do.
pub(crate) trait Transport: AsyncRead + AsyncWrite + fmt::Debug + Unpin + Send {
    /// Returns the socket under it, if it has one.
    fn socket(&mut self) -> Option<&mut Socket>;

    /// Returns from when until when the server's certificate is valid; `None` without TLS.
    fn certificate(&self) -> Option<Validity> {
        None
    }

    /// Ready if there may be something to read, or if the stream cannot tell. Else it wakes the task when there is, and no
    /// other reader.
    fn poll_readable(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

#[derive(Debug)]
enum Io {
    Own(TcpStream),
    Lent(Lent),
    Gone,
}

#[derive(Debug)]
struct Lent {
    /// Dropped before the descriptor is closed.
    _registration: Registration,
    stream: net::TcpStream,
    /// Whether there may be something to read.
    is_ready: bool,
    /// Whether nothing comes behind that.
    is_ending: bool,
    runtime: Handle,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(Io::Own(stream))
    }

    /// Lends it to `event_loop`, which tells `reader` when there is something to read. Called in the context of its
    /// runtime. Returns whether it is lent now: the system may refuse it, and then it has lost its wakers only.
    ///
    /// # Errors
    ///
    /// It is gone then.
    pub(crate) fn lend(&mut self, event_loop: &Arc<EventLoop>, reader: Weak<dyn OnReadable>) -> io::Result<bool> {
        let stream = match mem::replace(&mut self.0, Io::Gone) {
            Io::Own(stream) => stream.into_std()?,
            io => {
                self.0 = io;
                return Ok(true);
            }
        };
        let Ok(registration) = event_loop.watch(of_socket(&stream), reader) else {
            self.0 = Io::Own(TcpStream::from_std(stream)?);
            return Ok(false);
        };
        self.0 = Io::Lent(Lent {
            _registration: registration,
            stream,
            is_ready: true,
            is_ending: false,
            runtime: Handle::current(),
        });
        Ok(true)
    }

    /// Takes it back, if it is lent.
    ///
    /// # Errors
    ///
    /// It is gone then.
    pub(crate) fn take_back(&mut self) -> io::Result<()> {
        match mem::replace(&mut self.0, Io::Gone) {
            Io::Lent(Lent { _registration: registration, stream, runtime, .. }) => {
                drop(registration);
                let _context = runtime.enter();
                self.0 = Io::Own(TcpStream::from_std(stream)?);
            }
            io => self.0 = io,
        }
        Ok(())
    }

    /// Notes that there may be something to read, if it is lent, and with `is_last` that nothing comes behind it.
    pub(crate) fn set_ready(&mut self, is_last: bool) {
        if let Io::Lent(lent) = &mut self.0 {
            lent.is_ready = true;
            lent.is_ending |= is_last;
        }
    }
}

impl Lent {
    fn read(&mut self, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.is_ready {
            return Poll::Pending;
        }
        let bytes = buffer.initialize_unfilled();
        let room = bytes.len();
        match self.stream.read(bytes) {
            Ok(read) => {
                // The queue of events reports what comes later, and not what was left.
                self.is_ready = read == room || self.is_ending;
                buffer.advance(read);
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.is_ready = false;
                Poll::Pending
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.read(buffer),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.stream.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.write(bytes),
            written => Poll::Ready(written),
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the socket could not be watched")
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Io::Own(stream) => Pin::new(stream).poll_read(cx, buffer),
            Io::Lent(lent) => lent.read(buffer),
            Io::Gone => Poll::Ready(Err(gone())),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Io::Own(stream) => Pin::new(stream).poll_write(cx, bytes),
            Io::Lent(lent) => lent.write(bytes),
            Io::Gone => Poll::Ready(Err(gone())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Io::Own(stream) => Pin::new(stream).poll_flush(cx),
            // A socket has nothing to flush.
            Io::Lent(_) | Io::Gone => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Io::Own(stream) => Pin::new(stream).poll_shutdown(cx),
            // It is shut down when it is dropped.
            Io::Lent(_) | Io::Gone => Poll::Ready(Ok(())),
        }
    }
}

impl Transport for Socket {
    fn socket(&mut self) -> Option<&mut Socket> {
        Some(self)
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &self.0 {
            Io::Own(stream) => stream.poll_read_ready(cx).map(drop),
            Io::Lent(_) | Io::Gone => Poll::Ready(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;
    use crate::sys::descriptor::RawFd;
    use crate::sys::local_socket;

    impl Socket {
        /// Returns one that stands in for a connection to a server.
        pub(crate) fn local(stream: UnixStream) -> Self {
            Self::new(local_socket::alike(stream).unwrap())
        }

        /// Returns the address of the other end, which is a TCP socket.
        pub(crate) fn peer(&self) -> net::SocketAddr {
            let Io::Own(stream) = &self.0 else { panic!("{self:?}") };
            stream.peer_addr().unwrap()
        }

        pub(crate) fn fd(&self) -> RawFd {
            match &self.0 {
                Io::Own(stream) => of_socket(stream),
                Io::Lent(lent) => of_socket(&lent.stream),
                Io::Gone => panic!("{self:?}"),
            }
        }
    }

    /// Counts what an event loop tells: how often there was something to read, and whether it was the last.
    #[derive(Default)]
    struct Told(Mutex<(usize, bool)>);

    impl OnReadable for Told {
        fn readable(&self, is_last: bool) {
            let mut told = self.0.lock().unwrap();
            *told = (told.0 + 1, is_last);
        }

        fn give_back(&self) {}
    }

    impl Told {
        fn get(&self) -> (usize, bool) {
            *self.0.lock().unwrap()
        }
    }

    /// A socket that is lent, and the other end.
    fn lent() -> (Arc<EventLoop>, Arc<Told>, Socket, UnixStream) {
        let (event_loop, told) = (EventLoop::new().unwrap(), Arc::new(Told::default()));
        let (mine, theirs) = UnixStream::pair().unwrap();
        let mut socket = Socket::local(mine);
        let reader: Weak<Told> = Arc::downgrade(&told);
        assert!(socket.lend(&event_loop, reader).unwrap());
        (event_loop, told, socket, theirs)
    }

    /// Reads what there is, up to `most` bytes; `None` if there is nothing.
    fn read(socket: &mut Socket, most: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; most];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(socket).poll_read(&mut Context::from_waker(std::task::Waker::noop()), &mut buffer) {
            Poll::Pending => None,
            Poll::Ready(read) => {
                read.unwrap();
                Some(buffer.filled().to_vec())
            }
        }
    }

    #[tokio::test]
    async fn a_loop_tells_of_what_a_lent_socket_brings() {
        let (event_loop, told, mut socket, mut theirs) = lent();
        assert_eq!(read(&mut socket, 8), None);
        theirs.write_all(b"one").await.unwrap();
        assert_eq!(read(&mut socket, 8), None, "the loop has not looked");
        event_loop.turn();
        assert_eq!(told.get(), (1, false));
        socket.set_ready(false);
        assert_eq!(read(&mut socket, 2), Some(b"on".to_vec()));
        assert_eq!(read(&mut socket, 8), Some(b"e".to_vec()), "a full buffer may leave something");
        assert_eq!(read(&mut socket, 8), None);
        event_loop.turn();
        assert_eq!(told.get(), (1, false), "there is nothing new");
    }

    #[tokio::test]
    async fn an_end_right_behind_the_last_bytes_is_read() {
        let (event_loop, told, mut socket, mut theirs) = lent();
        theirs.write_all(b"bye").await.unwrap();
        drop(theirs);
        event_loop.turn();
        assert_eq!(told.get(), (1, true));
        socket.set_ready(true);
        assert_eq!(read(&mut socket, 8), Some(b"bye".to_vec()));
        assert_eq!(read(&mut socket, 8), Some(Vec::new()), "it has ended");
        assert_eq!(read(&mut socket, 8), Some(Vec::new()), "for good");
    }

    #[tokio::test]
    async fn a_socket_that_is_taken_back_is_watched_by_its_runtime() {
        let (event_loop, told, mut socket, mut theirs) = lent();
        theirs.write_all(b"before").await.unwrap();
        socket.take_back().unwrap();
        let mut bytes = [0; 6];
        socket.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"before");
        event_loop.turn();
        assert_eq!(told.get(), (0, false));
        socket.take_back().unwrap();
        assert!(socket.lend(&event_loop, Weak::<Told>::new()).unwrap());
        drop(socket);
        assert_eq!(theirs.read(&mut bytes).await.unwrap(), 0, "a lent socket is closed when it is dropped");
    }

    #[tokio::test]
    async fn who_asks_whether_there_is_something_to_read_is_woken_for_it_and_reads_nothing() {
        let (mine, mut theirs) = UnixStream::pair().unwrap();
        let mut socket = Socket::local(mine);
        assert!(poll_fn(|cx| Poll::Ready(socket.poll_readable(cx))).await.is_pending());
        theirs.write_all(b"one").await.unwrap();
        poll_fn(|cx| socket.poll_readable(cx)).await;
        assert_eq!(read(&mut socket, 8), Some(b"one".to_vec()));
        assert!(poll_fn(|cx| Poll::Ready(socket.poll_readable(cx))).await.is_pending(), "that was all");
        drop(theirs);
        poll_fn(|cx| socket.poll_readable(cx)).await;
        assert_eq!(read(&mut socket, 8), Some(Vec::new()));
    }

    #[tokio::test]
    async fn a_lent_socket_that_is_full_wakes_nobody() {
        let (_event_loop, _, mut socket, mut theirs) = lent();
        let full = vec![0; 1 << 16];
        let waker = std::task::Waker::noop();
        let mut written = 0;
        while let Poll::Ready(more) = Pin::new(&mut socket).poll_write(&mut Context::from_waker(waker), &full) {
            written += more.unwrap();
        }
        socket.take_back().unwrap();
        let mut all = vec![0; written + 1];
        let more = poll_fn(|cx| Pin::new(&mut socket).poll_write(cx, b"x"));
        let (more, read) = tokio::join!(more, theirs.read_exact(&mut all));
        assert_eq!((more.unwrap(), read.unwrap()), (1, written + 1));
    }
}
