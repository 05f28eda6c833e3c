//! The state that a client and its locks share: addresses, default options, and in each process the nodes.

use std::future::Future;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::acquire;
use crate::address::{Address, Addresses, Origin};
use crate::error::Error;
use crate::options::{Options, Settings};
use crate::process::Process;
use crate::process::context::{LockContext, Spec};
use crate::process::nodes::NodeSet;
use crate::process::schedule::Releasing;
use crate::process::shutdown::Ending;
use crate::protocol::name::Name;
use crate::protocol::shape::{Names, Shape};
use crate::sys::fork::{PerProcess, Pid};
use crate::sys::future::join_all;
use crate::sys::mutex::Mutex;

/// How many releases of a client that closes are under way at once.
const AT_ONCE: usize = 256;

/// The state that a client and its locks share.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) addresses: Addresses,
    origin: Origin,
    /// The client's options.
    pub(crate) options: Options,
    closed: AtomicBool,
    local: PerProcess<ProcessLocal>,
}

/// The part of a session that belongs to one process.
#[derive(Debug)]
pub(crate) struct ProcessLocal {
    process: Arc<Process>,
    /// `None` after the client is closed.
    set: Mutex<Option<Arc<NodeSet>>>,
    /// Ends the waiting calls when the client is closed.
    ending: Arc<Ending>,
}

impl Session {
    pub(crate) fn new((addresses, origin): (Addresses, Origin), options: Options, local: ProcessLocal) -> Self {
        Self { addresses, origin, options, closed: AtomicBool::new(false), local: PerProcess::with(local) }
    }

    /// Returns what errors show of a lock's names: each behind the prefix.
    pub(crate) fn shown(&self, shape: &Shape) -> Vec<u8> {
        let names = shape.names().into_iter().map(|name| [self.prefix(), name].concat());
        names.collect::<Vec<_>>().join(&b", "[..])
    }

    pub(crate) fn prefix(&self) -> &[u8] {
        self.options.key_prefix.as_deref().unwrap_or_default().as_bytes()
    }

    /// Closes the client and begins to release its locks; see [`Redlock::close`](crate::Redlock::close). What is returned
    /// waits for the releases.
    pub(crate) fn close(&self, limit: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.closed.store(true, Ordering::Relaxed);
        let releases = self.local(Pid::now()).ok().and_then(|local| {
            let set = local.set.lock().take();
            drop(set);
            local.ending.start();
            let releases = local.process.schedule.release_of(&local.ending);
            (!releases.is_empty()).then(|| released(&local.process, releases, limit))
        });
        async move {
            if let Some(released) = releases {
                // Without a background, nothing is sent, and the locks expire.
                drop(released.await);
            }
        }
    }

    /// Checks `shape` and `options`, and returns the context of a call on this lock.
    pub(crate) fn context(&self, shape: &Shape, options: &Options) -> Result<LockContext, Error> {
        let pid = Pid::now();
        self.context_of(pid, self.spec(pid, shape, options)?)
    }

    /// Checks a name, and returns the context of a call on this lock, or on this slot of a semaphore.
    pub(crate) fn context_of_one(&self, name: &[u8], slot: Option<u32>) -> Result<LockContext, Error> {
        let Some(slot) = slot else { return self.context(&name.into(), &Options::default()) };
        let shape = Shape::Semaphore(name.into(), slot.saturating_add(1));
        Ok(self.context(&shape, &Options::default())?.of_slot(slot))
    }

    /// Checks a lock's names and options, and returns them.
    pub(crate) fn spec(&self, pid: Pid, shape: &Shape, options: &Options) -> Result<Arc<Spec>, Error> {
        let process = &self.local(pid)?.process;
        let names = self.checked_names(shape)?;
        let name = names.shown();
        let with_name = |error: Error| error.with_name(name.bytes());
        let travelled =
            shape.detached().map(|detached| detached.options(options, &self.options)).transpose().map_err(with_name)?;
        let of_term = shape.is_term().then(|| options.of_term());
        let options = travelled.as_ref().or(of_term.as_ref()).unwrap_or(options);
        let in_force = options.or(&self.options);
        options.check_own(&in_force).map_err(with_name)?;
        names.check_options(options, &in_force).map_err(with_name)?;
        let settings = in_force.check(&process.label, self.addresses.iter().len()).map_err(with_name)?;
        Ok(self.spec_of(name, names, settings, shape))
    }

    /// Checks a lock's names, and returns them with `settings`, which were checked for another lock of this client and
    /// shape.
    pub(crate) fn spec_with(&self, shape: &Shape, settings: Settings) -> Result<Arc<Spec>, Error> {
        let names = self.checked_names(shape)?;
        Ok(self.spec_of(names.shown(), names, settings, shape))
    }

    fn checked_names(&self, shape: &Shape) -> Result<Names, Error> {
        shape.check(self.prefix(), self.addresses.iter().any(Address::is_cluster))
    }

    fn spec_of(&self, name: Name, names: Names, settings: Settings, shape: &Shape) -> Arc<Spec> {
        let settings = Settings { at_least: names.kept(settings.at_least), ..settings };
        let keys = names.keys(&settings.label);
        let (prefix, is_term, detached) = (self.prefix().len(), shape.is_term(), shape.detached().cloned());
        Arc::new(Spec { keys, name, names, prefix, settings, is_term, detached, origin: self.origin })
    }

    /// Returns the context of a call for `spec`. Fails if the client is closed.
    pub(crate) fn context_of(&self, pid: Pid, spec: Arc<Spec>) -> Result<LockContext, Error> {
        let local = self.local(pid)?;
        let Some(set) = local.set.lock().clone() else {
            return Err(acquire::closed().with_name(spec.name.bytes()));
        };
        if set.members.logins.as_ref().is_some_and(|logins| logins.is_calling_task()) {
            // It would wait for a login, and so for itself.
            let message = "a credentials provider cannot use a lock of its own client; use another client";
            return Err(Error::invalid(message).with_name(spec.name.bytes()));
        }
        Ok(LockContext { process: Arc::clone(&local.process), listed: set, spec, client: Arc::clone(&local.ending) })
    }

    /// Returns the settings of a lock without options of its own.
    pub(crate) fn settings(&self) -> Result<Settings, Error> {
        let process = &self.local(Pid::now())?.process;
        self.options.check(&process.label, self.addresses.iter().len())
    }

    /// Returns this process and the nodes. Fails if the client is closed.
    pub(crate) fn nodes(&self) -> Result<(Arc<Process>, Arc<NodeSet>), Error> {
        let local = self.local(Pid::now())?;
        let set = local.set.lock().clone().ok_or_else(acquire::closed)?;
        Ok((Arc::clone(&local.process), set))
    }

    /// Returns the part that belongs to this process. A forked child gets a new one, because it must not touch the
    /// parent's.
    fn local(&self, pid: Pid) -> Result<&ProcessLocal, Error> {
        self.local.try_of(pid, || {
            let process = Process::current();
            let closed = self.closed.load(Ordering::Relaxed);
            let set = if closed { None } else { Some(process.set(&self.addresses)?) };
            Ok(ProcessLocal::new(process, set))
        })
    }
}

/// Runs `releases` in the background for up to `limit`, and what waits behind them. What is left then is dropped, and so
/// becomes pending.
fn released(process: &Process, releases: Vec<(Releasing, Releasing)>, limit: Duration) -> oneshot::Receiver<()> {
    let (releases, left): (Vec<_>, Vec<_>) = releases.into_iter().unzip();
    let all = async move {
        in_turns(releases).await;
        for left in left {
            left.await;
        }
    };
    let (sender, receiver) = oneshot::channel();
    let clock = process.clock.clone();
    process.background.spawn(async move {
        clock.timeout(limit, pin!(all)).await;
        let _ = sender.send(());
    });
    receiver
}

/// Runs `releases` to their ends, no more at once than nodes answer within the time of each.
async fn in_turns(mut releases: Vec<Releasing>) {
    while !releases.is_empty() {
        let later = releases.split_off(releases.len().min(AT_ONCE));
        join_all(mem::replace(&mut releases, later)).await;
    }
}

impl ProcessLocal {
    pub(crate) fn new(process: Arc<Process>, set: Option<Arc<NodeSet>>) -> Self {
        Self { process, set: Mutex::new(set), ending: Arc::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::AtomicUsize;
    use std::task::Context;

    use super::*;
    use crate::sys::future::idle_waker;

    #[test]
    fn a_client_with_many_locks_releases_them_in_turns() {
        for (hanging, expected) in [(None, 3 * AT_ONCE), (Some(1), AT_ONCE), (Some(AT_ONCE), 2 * AT_ONCE)] {
            let begun = Arc::new(AtomicUsize::new(0));
            let release = |turn| -> Releasing {
                let begun = Arc::clone(&begun);
                Box::pin(async move {
                    begun.fetch_add(1, Ordering::Relaxed);
                    if hanging == Some(turn) {
                        pending::<()>().await;
                    }
                })
            };
            let mut releases = pin!(in_turns((0..3 * AT_ONCE).map(release).collect()));
            let is_over = releases.as_mut().poll(&mut Context::from_waker(idle_waker())).is_ready();
            assert_eq!((is_over, begun.load(Ordering::Relaxed)), (hanging.is_none(), expected));
        }
    }
}
