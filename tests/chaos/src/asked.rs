//! How a lock is asked for, and the acquire of it.

use std::time::Duration;

use face::{Client, Face, Guard, both};
use redlock::Error;

/// How a lock is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) ttl: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) auto_renew: bool,
    pub(crate) restart_delay: Duration,
    /// Break it off after this time.
    pub(crate) cancel: Option<Duration>,
    /// Do not wait.
    pub(crate) tries: bool,
}

impl Asked {
    /// Acquires the lock; `None` if it was broken off.
    pub(crate) async fn acquire(self, client: &Client, name: &str) -> Result<Option<Guard>, Error> {
        let timeout = match client {
            Face::Async(_) => self.timeout,
            // Nothing breaks it off but its own timeout.
            Face::Blocking(_) => self.cancel.or(self.timeout),
        };
        let lock = both!(client, client => {
            let lock = client.lock(name).ttl(self.ttl).auto_renew(self.auto_renew).restart_delay(self.restart_delay);
            match timeout {
                Some(timeout) => lock.timeout(timeout),
                None => lock.no_timeout(),
            }
        });
        match (self.cancel, client) {
            _ if self.tries => lock.try_acquire().await,
            (Some(limit), Face::Async(_)) => tokio::time::timeout(limit, lock.acquire()).await.ok().transpose(),
            _ => lock.acquire().await.map(Some),
        }
    }
}
