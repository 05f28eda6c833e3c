//! A lock that one client of a process detaches and another one attaches. For the judge it is one hold.

use std::time::Duration;

use redlock::{Error, ErrorKind};

use crate::book::Tenure;
use crate::client::{CONNECT, Task, cancelled, node_timeout};
use crate::hold::Holding;

/// Less is too short for both calls.
const LEAST_LEFT: Duration = Duration::from_secs(1);

/// How often the same text is tried.
const TRIES: usize = 3;

impl Holding {
    /// Detaches the lock and attaches it again. Returns `None` if it is over by that.
    pub(crate) async fn hand_over(mut self, task: &mut Task) -> Option<Self> {
        let left = task.pace.passes(self.guard.remaining());
        if left < LEAST_LEFT || task.stalls {
            return Some(self);
        }
        let until_ns = task.valid_until_ns(&self.guard);
        task.pen.begins("detaches");
        let (invoke_ns, patience) = (task.pen.now_ns(), task.patience_mostly());
        // Who ends now leaves the keys to the text.
        self.tenure.detach(self.longest, until_ns);
        let detached = cancelled(&task.pen.world, self.guard.detach(), patience).await;
        task.in_time("detach", invoke_ns, CONNECT + self.node_timeout);
        let text = match detached {
            Some(Ok(text)) => text,
            not_detached => {
                self.tenure.attach();
                return self.not_detached(task, not_detached.and_then(Result::err));
            }
        };
        let longest = u64::try_from(left.as_millis() / 4).unwrap_or(0);
        task.pen.world.sleep(task.dice.millis(0, longest)).await;
        let client = task.client();
        for _ in 0..TRIES {
            task.pen.begins("attaches");
            let (invoke_ns, mut patience) = (task.pen.now_ns(), task.patience_mostly());
            // Whoever holds it for the judge has it no longer than that.
            patience.time = patience.time.min(Duration::from_nanos(until_ns.saturating_sub(invoke_ns)));
            let attached = client.attach(text.as_str()).timeout(task.dice.millis(0, 1_000));
            match cancelled(&task.pen.world, attached.acquire(), patience).await {
                Some(Ok(guard)) => {
                    if (guard.fence(), guard.slot()) != (self.tenure.fence, self.tenure.slot) {
                        task.pen.flaw(&format!("fence {} and slot {:?} were attached", guard.fence(), guard.slot()));
                    }
                    self.tenure.attach();
                    self.guard = guard;
                    // It goes by the ttl of its text.
                    self.node_timeout = node_timeout(self.longest);
                    self.look(task);
                    return Some(self);
                }
                Some(Err(error)) if error.kind() == ErrorKind::Unavailable => task.pen.note(&error.to_string()),
                Some(Err(error)) if error.kind() == ErrorKind::Lost => {
                    self.told_lost(task, &error);
                    self.tenure.lost(error.reason());
                    return None;
                }
                Some(Err(error)) => task.pen.flaw(&format!("attach failed with {error}")),
                // The text is as good as before.
                None => {}
            }
        }
        None
    }

    /// The lock is held as before, lost, or released.
    fn not_detached(mut self, task: &Task, error: Option<Error>) -> Option<Self> {
        if let Some(error) = error {
            task.pen.note(&error.to_string());
            match error.kind() {
                ErrorKind::Unavailable => {}
                ErrorKind::Lost => {
                    self.told_lost(task, &error);
                    self.tenure.lost(error.reason());
                }
                _ => task.pen.flaw(&format!("detach failed with {error}")),
            }
        }
        self.guard.is_held().then_some(self)
    }
}

impl Tenure {
    /// Who has the lock now would leave its keys, which nodes may keep for `ttl`. It is held until then.
    fn detach(&mut self, ttl: Duration, until_ns: u64) {
        self.ttl = self.ttl.max(ttl);
        self.detached_until_ns = Some(until_ns);
    }

    /// Somebody releases it.
    fn attach(&mut self) {
        self.detached_until_ns = None;
    }
}
