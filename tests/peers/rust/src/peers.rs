//! Locks of other Rust libraries, each in the configuration that its documentation calls for.

use std::time::Duration;

use rslock::{LockError, LockGuard, LockManager};

/// How long rslock sleeps at most between two tries; on average half of it.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// rslock on any number of nodes, and the one lock that was acquired last.
#[derive(Debug)]
pub struct Rslock {
    manager: LockManager,
    held: Option<LockGuard>,
}

impl Rslock {
    /// Connects at the first acquire.
    pub fn open(urls: Vec<String>) -> Self {
        Self { manager: LockManager::new(urls), held: None }
    }

    /// Whether it was acquired within `wait`: none is for ever, zero is one try.
    pub async fn acquire(&mut self, name: &str, ttl: Duration, wait: Option<Duration>) -> Result<bool, LockError> {
        let acquired = match wait {
            None => self.manager.acquire(name, ttl).await,
            Some(wait) => {
                let tries = 1 + wait.as_millis().div_ceil(RETRY_DELAY.as_millis() / 2);
                self.manager.set_retry(u32::try_from(tries).unwrap_or(u32::MAX), RETRY_DELAY);
                self.manager.lock(name, ttl).await.map(|lock| LockGuard { lock })
            }
        };
        match acquired {
            Ok(guard) => self.held = Some(guard),
            Err(LockError::Unavailable) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Releases it.
    pub async fn release(&mut self) {
        if let Some(guard) = self.held.take() {
            guard.release().await;
        }
    }
}
