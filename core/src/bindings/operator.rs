//! What the program `redlock` does that is not in the public API.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::api::client::Redlock;
use crate::api::guard::Guard;
pub use crate::api::listing::Walk;
use crate::api::lock::{Fixed, Lock};
pub use crate::api::operator::{Holding, Removal, holding};
use crate::api::wait_free;
pub use crate::api::wait_free::AWAY_MOST;
use crate::error::{Error, NodeAnswer};
use crate::options::Options;
pub use crate::protocol::shape::PERMITS_MOST;
use crate::protocol::shape::Shape;
pub use crate::sys::future::join_all;

/// Returns the files with the passwords for a client's nodes and their sentinels.
pub fn password_files(redlock: &Redlock) -> impl Iterator<Item = &Path> {
    let files = redlock.session().addresses.iter().flat_map(|node| [&node.password_file, &node.sentinel_password_file]);
    files.flatten().map(|file| &**file)
}

/// Waits until an acquire of this lock would not have to wait; see [`Redlock::wait_free`], which takes only names.
///
/// # Errors
///
/// As there.
pub async fn wait_free<Kind>(redlock: &Redlock, lock: &Lock<Kind>, timeout: Option<Duration>) -> Result<bool, Error> {
    wait_free::wait_free(redlock.session().context(lock.shape(), &Options::default())?, timeout).await
}

/// Returns what each node answered to the last renewals of a held lock; nothing if the last one found a quorum.
#[must_use]
pub fn unanswered(guard: &Guard) -> Vec<NodeAnswer> {
    guard.lease().last_answers().unwrap_or_default()
}

/// Makes a lock as [`Redlock::attach`] does, whose text stays good: it does not take the lock from others who have it, and
/// leaves it to them when its guard is dropped.
pub fn attach_again(redlock: &Redlock, text: &str) -> Lock<Fixed> {
    let session = redlock.session();
    Lock::new(Arc::clone(session), Shape::of_detached(text, session.prefix()).keeping_token())
}
