//! The two faces of the Rust library behind one type, so that a program which uses both is written once.
//!
//! Each call is a future. Those of the blocking face never wait: [`complete`] runs them.
#![allow(clippy::missing_panics_doc, reason = "what panics is the work of the caller")]

use std::pin::pin;
use std::str::FromStr;
use std::sync::LazyLock;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use redlock::{DetachedLock, Diagnosis, Error, Fixed, Leader, LockView, LostReason, blocking};
use tokio::runtime::Runtime;

/// A value of the library, as one of the faces has it.
#[derive(Clone, Copy, Debug)]
pub enum Face<A, B> {
    /// For tokio.
    Async(A),
    /// For threads.
    Blocking(B),
}

/// One of the faces.
pub type Which = Face<(), ()>;
/// What makes a client.
pub type Builder = Face<redlock::Builder, blocking::Builder>;
/// A client.
pub type Client = Face<redlock::Redlock, blocking::Redlock>;
/// A lock.
pub type Lock = Face<redlock::Lock<Fixed>, blocking::Lock<Fixed>>;
/// Its guard.
pub type Guard = Face<redlock::Guard, blocking::Guard>;
/// A guard that somebody else owns.
pub type GuardRef<'a> = Face<&'a redlock::Guard, &'a blocking::Guard>;
/// A candidate of an election.
pub type Election = Face<redlock::Election, blocking::Election>;
/// A lock in the older protocol.
pub type SetnxLock = Face<redlock::SetnxLock, blocking::SetnxLock>;
/// Its guard.
pub type SetnxGuard = Face<redlock::SetnxGuard, blocking::SetnxGuard>;

/// Waits for the end of what was spawned.
pub type Wait = Box<dyn FnOnce()>;

/// Does the same in either face: `both!(client, client => client.semaphore("a", 2))` is a [`Lock`].
#[macro_export]
macro_rules! both {
    ($face:expr, $it:pat => $do:expr) => {
        match $face {
            $crate::Face::Async($it) => $crate::Face::Async($do),
            $crate::Face::Blocking($it) => $crate::Face::Blocking($do),
        }
    };
}

/// Asks for what has the same type in either face.
macro_rules! ask {
    ($face:expr, $it:ident => $do:expr) => {
        match $face {
            Face::Async($it) => $do,
            Face::Blocking($it) => $do,
        }
    };
}

/// Makes a call, whose result has the same type in either face.
macro_rules! call {
    ($face:expr, $it:ident => $do:expr) => {
        match $face {
            Face::Async($it) => $do.await,
            Face::Blocking($it) => $do,
        }
    };
}

impl<A, B> Face<A, B> {
    /// Runs this beside everything else: as a task of the runtime, or on a thread of its own.
    pub fn spawn(&self, runtime: &'static LazyLock<Runtime>, work: impl Future<Output = ()> + Send + 'static) -> Wait {
        match self {
            Self::Async(_) => {
                let task = runtime.spawn(work);
                Box::new(move || runtime.block_on(task).expect("the task did not panic"))
            }
            Self::Blocking(_) => {
                let thread = thread::spawn(|| complete(work));
                Box::new(|| thread.join().expect("the thread did not panic"))
            }
        }
    }

    /// Lets time pass.
    pub async fn sleep(&self, time: Duration) {
        match self {
            Self::Async(_) => tokio::time::sleep(time).await,
            Self::Blocking(_) => thread::sleep(time),
        }
    }
}

/// Runs what uses the blocking face: every call blocks inside the first poll.
pub fn complete(work: impl Future<Output = ()>) {
    let poll = pin!(work).poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll.is_ready(), "a blocking call does not wait for a waker");
}

impl FromStr for Which {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "async" | "rust" => Ok(Self::Async(())),
            "blocking" | "rust-blocking" => Ok(Self::Blocking(())),
            _ => Err("the faces are rust and rust-blocking"),
        }
    }
}

/// Begins to make a client.
#[must_use]
pub fn builder(face: Which) -> Builder {
    match face {
        Face::Async(()) => Face::Async(redlock::Redlock::builder()),
        Face::Blocking(()) => Face::Blocking(blocking::Redlock::builder()),
    }
}

impl Builder {
    /// Makes the client.
    pub fn build(self) -> Result<Client, Error> {
        Ok(both!(self, builder => builder.build()?))
    }
}

impl Client {
    /// Asks every node what it has under a name.
    pub async fn inspect(&self, name: impl AsRef<[u8]>) -> Result<LockView, Error> {
        call!(self, client => client.inspect(name))
    }

    /// Asks every node what it has in each slot of a semaphore.
    pub async fn inspect_semaphore(&self, name: impl AsRef<[u8]>, permits: u32) -> Result<Vec<LockView>, Error> {
        call!(self, client => client.inspect_semaphore(name, permits))
    }

    /// Lists up to so many of the locks that are held and match a pattern.
    pub async fn list_locks(&self, pattern: impl AsRef<[u8]>, most: usize) -> Result<Vec<LockView>, Error> {
        match self {
            Face::Async(client) => {
                let (mut held, mut views) = (client.list_locks(pattern), Vec::new());
                while views.len() < most
                    && let Some(view) = held.next().await?
                {
                    views.push(view);
                }
                Ok(views)
            }
            Face::Blocking(client) => client.list_locks(pattern).take(most).collect(),
        }
    }

    /// Waits until a lock is free.
    pub async fn wait_free(&self, name: impl AsRef<[u8]>, timeout: Option<Duration>) -> Result<bool, Error> {
        call!(self, client => client.wait_free(name, timeout))
    }

    /// Deletes a lock that somebody else holds.
    pub async fn break_lock(&self, name: impl AsRef<[u8]>, slot: Option<u32>) -> Result<Option<LockView>, Error> {
        call!(self, client => client.break_lock(name, slot))
    }

    /// Finds out what each node can do and may lose.
    pub async fn diagnose(&self) -> Result<Vec<Diagnosis>, Error> {
        call!(self, client => client.diagnose())
    }

    /// Closes it, and waits up to `limit` for the release of its locks.
    pub async fn close(self, limit: Duration) {
        call!(self, client => client.close(limit));
    }
}

/// What guards of both protocols tell, whoever owns them.
macro_rules! held {
    ($guard:ty) => {
        impl $guard {
            /// Returns how long the lock stays valid.
            #[must_use]
            pub fn remaining(&self) -> Duration {
                ask!(self, guard => guard.remaining())
            }

            /// Returns whether the lock is held.
            #[must_use]
            pub fn is_held(&self) -> bool {
                ask!(self, guard => guard.is_held())
            }

            /// Fails if the lock is not held.
            pub fn check(&self) -> Result<(), Error> {
                ask!(self, guard => guard.check())
            }

            /// Waits so long, or until the lock is lost.
            pub async fn wait_lost(&self, limit: Duration) -> Option<Error> {
                match self {
                    Self::Async(guard) => tokio::time::timeout(limit, guard.lost()).await.ok(),
                    Self::Blocking(guard) => guard.wait_lost(limit),
                }
            }

            /// Has it lose its lock.
            pub fn lose(&self, reason: LostReason) {
                ask!(self, guard => guard.lose(reason));
            }
        }
    };
}

held!(Guard);
held!(GuardRef<'_>);
held!(SetnxGuard);

/// What locks and guards of both protocols do.
macro_rules! protocol {
    ($lock:ident, $guard:ident) => {
        impl $lock {
            /// Acquires the lock.
            pub async fn acquire(&self) -> Result<$guard, Error> {
                Ok(match self {
                    Self::Async(lock) => Face::Async(lock.acquire().await?),
                    Self::Blocking(lock) => Face::Blocking(lock.acquire()?),
                })
            }

            /// Tries once.
            pub async fn try_acquire(&self) -> Result<Option<$guard>, Error> {
                Ok(match self {
                    Self::Async(lock) => lock.try_acquire().await?.map(Face::Async),
                    Self::Blocking(lock) => lock.try_acquire()?.map(Face::Blocking),
                })
            }
        }

        impl $guard {
            /// Releases the lock.
            pub async fn release(self) -> Result<(), Error> {
                call!(self, guard => guard.release())
            }
        }
    };
}

protocol!(Lock, Guard);
protocol!(SetnxLock, SetnxGuard);

impl Lock {
    /// Asks the nodes whether anybody holds the lock.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        call!(self, lock => lock.is_locked())
    }
}

impl Client {
    /// Makes the lock that goes on with the hold of this text.
    #[must_use]
    pub fn attach(&self, text: &str) -> Lock {
        both!(self, client => client.attach(text))
    }
}

impl Election {
    /// Ends the election for this candidate.
    pub fn stop(&self) {
        ask!(self, election => election.stop());
    }

    /// Returns whether it was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        ask!(self, election => election.is_stopped())
    }

    /// Asks the nodes who leads.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        call!(self, election => election.leader())
    }
}

impl Guard {
    /// Lends the guard.
    #[must_use]
    pub fn lend(&self) -> GuardRef<'_> {
        both!(self, guard => guard)
    }
}

/// What guards of the protocol with fences have, whoever owns them.
macro_rules! fenced {
    ($guard:ty) => {
        impl $guard {
            /// Returns the name, or all names.
            #[must_use]
            pub fn name(&self) -> &[u8] {
                ask!(self, guard => guard.name())
            }

            /// Returns every name.
            #[must_use]
            pub fn names(&self) -> Vec<&[u8]> {
                ask!(self, guard => guard.names())
            }

            /// Returns the slot of a semaphore.
            #[must_use]
            pub fn slot(&self) -> Option<u32> {
                ask!(self, guard => guard.slot())
            }

            /// Returns the fence.
            #[must_use]
            pub fn fence(&self) -> u64 {
                ask!(self, guard => guard.fence())
            }

            /// Extends the lock by its ttl.
            pub async fn extend(&self) -> Result<(), Error> {
                call!(self, guard => guard.extend())
            }

            /// Extends the lock by this ttl.
            pub async fn extend_for(&self, ttl: Duration) -> Result<(), Error> {
                call!(self, guard => guard.extend_for(ttl))
            }

            /// Ends the hold without a release.
            pub async fn detach(&self) -> Result<DetachedLock, Error> {
                call!(self, guard => guard.detach())
            }

            /// Does the same after an extension by this ttl.
            pub async fn detach_for(&self, ttl: Duration) -> Result<DetachedLock, Error> {
                call!(self, guard => guard.detach_for(ttl))
            }
        }
    };
}

fenced!(Guard);
fenced!(GuardRef<'_>);
