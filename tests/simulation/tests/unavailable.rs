//! Callers that would wait for ever, while no quorum of nodes answers.

use std::future::{Future, IntoFuture};
use std::time::Duration;

use redlock::testing::simulation::{Node, World};
use redlock::{Error, ErrorKind, Guard, Redlock};
use redlock_simulation::calm::{Calm, in_virtual_time, stage};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// How long nodes that give no quorum are tried.
const PATIENCE: Duration = Duration::from_secs(10);

/// Until the one in front notices, after the longest sleep, and then the one behind it: each by an attempt that has to
/// connect first.
const NOTICED: Duration = Duration::from_secs(7);

/// The holder never gives the lock back.
const TTL: Duration = Duration::from_secs(3_600);

/// Of whoever waits, and so for how long nodes that restart are barred.
const WAITER_TTL: Duration = Duration::from_secs(40);

/// When a bar has ended for certain.
const BARRED_MOST: Duration = Duration::from_secs(60);

struct Stage {
    world: World,
    waiter: Redlock,
    holder: Option<Guard>,
}

impl Stage {
    async fn new(nodes: usize) -> Self {
        let (_, world, [holder, waiter]) = stage::<Calm, 2>(nodes);
        let holder = holder.lock("job").ttl(TTL).acquire().await.expect("it is free");
        Self { world, waiter, holder: Some(holder) }
    }

    /// A call without a timeout, which is denied and waits.
    async fn wait(&self) -> JoinHandle<Result<Guard, Error>> {
        let call = tokio::spawn(self.waiter.lock("job").ttl(WAITER_TTL).into_future());
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

/// Nodes that are down, then restart again and again, and are down again: only the time counts in which no bar is in the way.
#[test]
fn time_behind_bars_does_not_count_and_time_without_nodes_does() {
    const DOWN: Duration = Duration::from_secs(8);
    const BAR: Duration = Duration::from_secs(5);
    const MOMENT: Duration = Duration::from_secs(1);
    on_one_and_five(|stage| async move {
        let crash = || stage.majority().iter().for_each(|node| node.crash(false));
        let lock = stage.waiter.lock("job").ttl(WAITER_TTL).restart_delay(BAR);
        let call = tokio::spawn(lock.into_future());
        sleep(MOMENT).await;
        crash();
        sleep(DOWN).await;
        for _ in 0..4 {
            stage.majority().iter().for_each(Node::start);
            sleep(MOMENT).await;
            crash();
        }
        stage.majority().iter().for_each(Node::start);
        sleep(BAR.saturating_sub(MOMENT)).await;
        crash();
        sleep(MOMENT).await;
        assert!(!call.is_finished(), "for longer without a lock, but not without nodes");
        let error = timeout(PATIENCE.saturating_sub(DOWN) + NOTICED, call).await.expect("in time").expect("no panic");
        assert_eq!(error.expect_err("no quorum").kind(), ErrorKind::Unavailable);
    });
}

/// One of three is dead and one is barred: with that one they are a quorum again. Whoever begins to wait then, and whoever
/// waits already, is neither told that no quorum answers nor that others hold the lock.
#[test]
fn a_bar_beside_a_dead_node_is_waited_for() {
    in_virtual_time(async {
        let stage = Stage::new(3).await;
        let lock = || stage.waiter.lock("job").ttl(WAITER_TTL);
        let timed = tokio::spawn(lock().timeout(PATIENCE * 2).into_future());
        sleep(Duration::from_secs(3)).await;
        stage.world.nodes()[0].crash(true);
        stage.world.nodes()[1].crash(false);
        stage.world.nodes()[1].start();
        stage.world.nodes()[2].delete(b"job");
        let endless = tokio::spawn(lock().into_future());
        let error = timeout(PATIENCE * 3, timed).await.expect("in time").expect("no panic").expect_err("one counts");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.nodes()[1].answer.starts_with("restarted; its votes count again in"), "{error}");
        let guard = timeout(BARRED_MOST, endless).await.expect("in time").expect("no panic").expect("two are a quorum");
        guard.release().await.expect("it is held");
    });
}

/// Its lock is gone with the data of the nodes, so that it waits for bars from then on.
#[test]
fn waiters_are_told_of_the_bars_when_nodes_restart_without_data() {
    for nodes in [1, 3, 5] {
        in_virtual_time(async {
            let stage = Stage::new(nodes).await;
            let lock = stage.waiter.lock("job").ttl(WAITER_TTL).timeout(PATIENCE);
            let [front, behind] = [(); 2].map(|()| tokio::spawn(lock.clone().into_future()));
            sleep(Duration::from_secs(3)).await;
            for node in stage.majority() {
                node.crash(false);
                node.start();
            }
            for call in [front, behind] {
                let error = timeout(PATIENCE, call).await.expect("in time").expect("no panic").expect_err("barred");
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{nodes} nodes: {error}");
                let barred = |answer: &str| answer.starts_with("restarted; its votes count again in");
                assert!(barred(&error.nodes()[0].answer), "{nodes} nodes: {error}");
            }
        });
    }
}

/// It keys back what it has re-keyed before it tries again, and one node is silent both times.
#[test]
fn an_attachment_ends_with_its_timeout() {
    in_virtual_time(async {
        let (_, world, [client]) = stage::<Calm, 1>(3);
        let held = client.lock("job").ttl(TTL).acquire().await.expect("it is free");
        sleep(Duration::from_secs(1)).await;
        let text = held.detach().await.expect("it is held");
        world.nodes()[1].take(b"job", TTL);
        world.nodes()[2].freeze();
        let (begun, time) = (Instant::now(), Duration::from_millis(900));
        let error = client.attach(text.as_str()).timeout(time).acquire().await.expect_err("no quorum has it");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(begun.elapsed() <= time + Duration::from_millis(5), "{:?}", begun.elapsed());
    });
}
