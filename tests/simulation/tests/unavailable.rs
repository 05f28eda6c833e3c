//! Callers that would wait for ever, while no quorum of nodes answers.

use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::time::Duration;

use redlock::simulation::{Node, Pace, World};
use redlock::{Error, ErrorKind, Guard, Redlock};
use redlock_simulation::calm::{Calm, bits, in_virtual_time};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// How long nodes that give no quorum are tried.
const PATIENCE: Duration = Duration::from_secs(10);

/// Until the one in front notices, after the longest sleep, and then the one behind it: each by an attempt that has to
/// connect first.
const NOTICED: Duration = Duration::from_secs(5);

/// The holder never gives the lock back.
const TTL: Duration = Duration::from_secs(3_600);

struct Stage {
    world: World,
    waiter: Redlock,
    holder: Option<Guard>,
}

impl Stage {
    async fn new(nodes: usize) -> Self {
        let world = World::new(Arc::new(Calm), &vec![Pace::default(); nodes]);
        let holder = world.process(0, Pace::default(), bits(0)).expect("a client");
        let holder = holder.lock("job").ttl(TTL).acquire().await.expect("it is free");
        let waiter = world.process(1, Pace::default(), bits(1)).expect("a client");
        Self { world, waiter, holder: Some(holder) }
    }

    /// A call without a timeout, which is denied and waits.
    async fn wait(&self) -> JoinHandle<Result<Guard, Error>> {
        let call = tokio::spawn(self.waiter.lock("job").ttl(Duration::from_secs(10)).into_future());
        sleep(Duration::from_secs(3)).await;
        assert!(!call.is_finished());
        call
    }

    /// The smallest number of nodes without which there is no quorum.
    fn majority(&self) -> &[Node] {
        &self.world.nodes()[..self.world.nodes().len().div_ceil(2)]
    }
}

/// Runs `story` on one node and on five, in virtual time.
fn on_one_and_five<F: Future<Output = ()>>(story: impl Fn(Stage) -> F) {
    for nodes in [1, 5] {
        in_virtual_time(async { story(Stage::new(nodes).await).await });
    }
}

/// Everybody who waits is told, in front or behind, and not before the time is over.
async fn everybody_is_told(stage: Stage, fail: fn(&Node)) {
    let calls = [stage.wait().await, stage.wait().await];
    stage.majority().iter().for_each(fail);
    let failed = Instant::now();
    for call in calls {
        let left = (PATIENCE + NOTICED).saturating_sub(failed.elapsed());
        let error = timeout(left, call).await.expect("in time").expect("no panic").expect_err("no quorum");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(failed.elapsed() >= PATIENCE, "after {:?}", failed.elapsed());
    }
}

#[test]
fn who_waits_for_frozen_nodes_is_told() {
    on_one_and_five(|stage| everybody_is_told(stage, Node::freeze));
}

#[test]
fn who_waits_for_dead_nodes_is_told() {
    on_one_and_five(|stage| everybody_is_told(stage, |node| node.crash(true)));
}

#[test]
fn nodes_that_answer_again_in_time_are_waited_for_as_before() {
    on_one_and_five(|mut stage| async move {
        let call = stage.wait().await;
        for _ in 0..3 {
            stage.majority().iter().for_each(Node::freeze);
            sleep(PATIENCE * 9 / 10).await;
            stage.majority().iter().for_each(Node::thaw);
            // Long enough for the one in front to hear from them.
            sleep(NOTICED).await;
            assert!(!call.is_finished());
        }
        stage.holder.take().expect("it is held").release().await.expect("it was held all the time");
        let guard = timeout(NOTICED, call).await.expect("in time").expect("no panic").expect("it is free");
        guard.release().await.expect("it is held");
    });
}
