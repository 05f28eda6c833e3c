//! What the library logs, kept for a test to read.

use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use tracing::Dispatch;

/// Keeps what is logged.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<String>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write_str(&String::from_utf8_lossy(bytes)).unwrap();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What all threads log that have no subscriber of their own, the background among them.
pub(crate) fn of_all_threads() -> Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    let begin = || {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        log
    };
    LOG.get_or_init(begin).clone()
}

/// Runs `work`, whose thread logs to `subscriber` meanwhile.
pub(crate) fn on_this_thread<T>(subscriber: impl Into<Dispatch>, work: impl FnOnce() -> T) -> T {
    // If there is one subscriber alone, tracing asks the thread that comes first to an event whether it is wanted, and
    // that may be another test's.
    of_all_threads();
    tracing::dispatcher::with_default(&subscriber.into(), work)
}
