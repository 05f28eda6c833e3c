//! The schedule's actions on a held lock: its renewal, its restoring on nodes that miss it, and its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::hold;
use crate::hold::extend::{self, Extended, Wait};
use crate::hold::lease::{Lease, Target};
use crate::hold::restore;
use crate::process::metrics::RenewalEnd;
use crate::process::schedule::{Kept, Releasing};

impl Kept for Lease {
    fn renew(self: Arc<Self>) {
        let process = Arc::clone(&self.context.process);
        process.background.spawn(renew(self));
    }

    fn restore(self: Arc<Self>, node: usize, within: Duration) {
        restore::restore(&self, node, within);
    }

    fn seek(&self, node: usize) {
        restore::seek(&self.context, node);
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
