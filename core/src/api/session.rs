//! What a client and its locks share: addresses, default options, and in each process its nodes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::acquire;
use crate::address::Addresses;
use crate::error::Error;
use crate::options::Options;
use crate::process::Process;
use crate::process::context::{LockContext, Spec};
use crate::process::nodes::NodeSet;
use crate::process::shutdown::Ending;
use crate::protocol::name::Name;
use crate::protocol::request::Keys;
use crate::sys::fork::{PerProcess, Pid};

/// What a client and its locks share.
#[derive(Debug)]
pub(crate) struct Session {
    addresses: Addresses,
    options: Options,
    closed: AtomicBool,
    own: PerProcess<Own>,
}

/// What a client has of its own in each process.
#[derive(Debug)]
pub(crate) struct Own {
    process: Arc<Process>,
    /// `None` once the client is closed.
    set: Mutex<Option<Arc<NodeSet>>>,
    /// Said when the client is closed, to its waiting calls.
    ending: Arc<Ending>,
}

impl Session {
    pub(crate) fn new(addresses: Addresses, options: Options, own: Own) -> Self {
        Self { addresses, options, closed: AtomicBool::new(false), own: PerProcess::with(own) }
    }

    /// Ends the client: see [`Redlock::close`](crate::Redlock::close).
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        if let Ok(own) = self.own(Pid::now()) {
            let set = own.set().take();
            drop(set);
            own.ending.start();
        }
    }

    /// Everything a call on the lock `name` needs, checked.
    pub(crate) fn context(&self, name: impl Into<Arc<[u8]>>, options: Options) -> Result<LockContext, Error> {
        let pid = Pid::now();
        self.context_of(pid, self.spec(pid, name, options)?)
    }

    /// A lock's name and options, checked.
    pub(crate) fn spec(&self, pid: Pid, name: impl Into<Arc<[u8]>>, options: Options) -> Result<Arc<Spec>, Error> {
        let process = &self.own(pid)?.process;
        let name = Name::parse(name).map_err(|error| error.with_option("name"))?;
        let with_name = |error: Error| error.with_name(name.bytes());
        options.check_own(&self.options).map_err(with_name)?;
        let settings =
            options.or(&self.options).check(&process.label, self.addresses.iter().len()).map_err(with_name)?;
        Ok(Arc::new(Spec { keys: Keys::of(&name), name, settings }))
    }

    /// Where attempts for `spec` are made from.
    pub(crate) fn context_of(&self, pid: Pid, spec: Arc<Spec>) -> Result<LockContext, Error> {
        let own = self.own(pid)?;
        let Some(set) = own.set().clone() else {
            return Err(acquire::closed(spec.name.bytes()));
        };
        Ok(LockContext { process: Arc::clone(&own.process), set, spec, client: Arc::clone(&own.ending) })
    }

    /// What belongs to this process; new in a forked child, where the parent's must not be touched.
    fn own(&self, pid: Pid) -> Result<&Own, Error> {
        self.own.try_of(pid, || {
            let process = Process::current();
            let closed = self.closed.load(Ordering::Relaxed);
            let set = if closed { None } else { Some(process.set(&self.addresses)?) };
            Ok(Own::new(process, set))
        })
    }
}

impl Own {
    pub(crate) fn new(process: Arc<Process>, set: Option<Arc<NodeSet>>) -> Self {
        Self { process, set: Mutex::new(set), ending: Arc::default() }
    }

    fn set(&self) -> MutexGuard<'_, Option<Arc<NodeSet>>> {
        self.set.lock().expect("no panic while holding this")
    }
}
