//! The schedule's actions on a held lock: its renewal, its restoring on nodes that miss it, and its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::hold;
use crate::hold::extend::{self, Extended, Wait};
use crate::hold::lease::{Lease, Target};
use crate::hold::restore;
use crate::net::connections::Members;
use crate::process::metrics::RenewalEnd;
use crate::process::schedule::{Next, NotHeld, OwnHold, Releasing, Timed, Unlogged};
use crate::process::shutdown::Ending;
use crate::process::waiters::Waiters;
use crate::protocol::name::Name;
use crate::protocol::shape::Names;
use crate::sys::clock::Moment;

impl Timed for Lease {
    fn is_on(&self, members: &Members) -> bool {
        std::ptr::eq(&raw const *self.context.set().members, members)
    }

    fn names(&self) -> &[Name] {
        self.context.spec.names.each()
    }

    fn hold_of(&self, waiters: &Waiters, names: &Names) -> Option<OwnHold> {
        let is_same = std::ptr::eq(&raw const *self.context.listed.waiters, waiters);
        if is_same && self.context.spec.names.meet(names) { self.own_hold() } else { None }
    }

    fn next(&self, now: Moment) -> Next {
        self.next(now)
    }

    fn entered(&self, due: (Moment, u64)) -> Result<Option<(Moment, u64)>, NotHeld> {
        self.entered(due)
    }

    fn renew(self: Arc<Self>) {
        let process = Arc::clone(&self.context.process);
        process.background.spawn(renew(self));
    }

    fn expire_if_due(&self) -> Option<Unlogged> {
        self.expire_if_due()
    }

    fn bring_forward(&self, within: Duration) -> bool {
        self.bring_forward(within)
    }

    fn may_lack(&self, node: usize) -> bool {
        self.may_lack(node)
    }

    fn restore(self: Arc<Self>, node: usize, within: Duration) {
        restore::restore(&self, node, within);
    }

    fn seek(&self, node: usize) {
        restore::seek(&self.context, node);
    }

    fn release_all(&self) {
        // The dropped claim lets the background release.
        drop(self.begin_release());
    }

    fn is_of(&self, client: &Arc<Ending>) -> bool {
        Arc::ptr_eq(&self.context.client, client)
    }

    fn release(self: Arc<Self>) -> (Releasing, Releasing) {
        let begun = self.begin_release();
        let (waiters, keys) = (Arc::clone(&self.context.listed.waiters), Arc::clone(&self.context.spec.keys));
        let release = Box::pin(async move {
            // It is closed whatever becomes of its locks; metrics and the log tell that.
            drop(hold::finish_release(self, begun).await);
        });
        (release, Box::pin(async move { waiters.left(&keys).await }))
    }
}

/// Runs one renewal.
async fn renew(lease: Arc<Lease>) {
    let connections = lease.context.set().connections(&Handle::current());
    lease.context.process.lists.used(&lease.context.listed.list, lease.context.spec.names.each());
    let (until, ttl) = lease.validity();
    let metrics = &lease.context.process.metrics;
    match extend::extend(&lease, &connections, Target::InForce, Wait::Nobody).await {
        Extended::Over => {}
        Extended::Done => {
            metrics.renewals[RenewalEnd::Renewed as usize].add();
            let counts = lease.meter.counts(&lease.context.process);
            // An extension and a handed over lock may have more left than the ttl of renewals.
            counts.margins.record_share(until.since(connections.clock.now()).min(ttl), ttl);
        }
        Extended::Unknown(extending, nodes) => {
            metrics.renewals[RenewalEnd::Unanswered as usize].add();
            lease.unanswered(extending, nodes);
        }
        Extended::Lost(loss) => {
            metrics.renewals[RenewalEnd::Lost as usize].add();
            lease.lose(&loss);
        }
    }
    let schedule = Arc::clone(&lease.context.process.schedule);
    schedule.add(lease);
}
