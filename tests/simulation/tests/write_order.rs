//! Who is written to first: the nodes in their order, but one that owes answers after the others.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redlock::testing::simulation::{Fate, Leg, Network};
use redlock_simulation::calm::{DELAY, in_virtual_time, stage};

/// Less than the `node_timeout`: nobody is called silent.
const LATE: Duration = Duration::from_millis(200);

/// Remembers in which order the nodes are written to; the replies of the first one can be late.
#[derive(Default)]
struct Recording {
    late: AtomicBool,
    written: Mutex<Vec<usize>>,
}

impl Recording {
    fn written(&self) -> Vec<usize> {
        std::mem::take(&mut *self.written.lock().expect("no panic while holding this"))
    }
}

impl Network for Recording {
    fn fate(&self, _: usize, node: usize, leg: Leg) -> Fate {
        match leg {
            Leg::Write => {
                self.written.lock().expect("no panic while holding this").push(node);
                Fate::Deliver(Duration::ZERO)
            }
            Leg::Reply if node == 0 && self.late.load(Ordering::Relaxed) => Fate::Deliver(LATE),
            _ => Fate::Deliver(DELAY),
        }
    }
}

#[test]
fn a_node_that_owes_answers_is_written_to_last() {
    in_virtual_time(async {
        let (network, world, [client]) = stage::<Recording, 1>(3);
        let pair = async || {
            let guard = client.lock("job").await.expect("it is free");
            let acquired = network.written();
            guard.release().await.expect("it is held");
            (acquired, network.written())
        };
        let (in_order, last) = (vec![0, 1, 2], vec![1, 2, 0]);
        pair().await;
        assert_eq!(pair().await, (in_order.clone(), in_order.clone()), "all are well");
        world.sleep(Duration::from_secs(1)).await;
        network.late.store(true, Ordering::Relaxed);
        // What is on its way when a round begins is no reason: other clients would not see it, and write first where
        // this one writes last.
        assert_eq!(pair().await, (in_order.clone(), in_order.clone()), "it may still answer in time");
        // Nor is what it owes while nobody listens to the others either; but then they answer, and it does not.
        world.sleep(LATE / 4).await;
        assert_eq!(pair().await, (in_order.clone(), last.clone()));
        assert_eq!(pair().await, (last.clone(), last), "it still owes them");
        network.late.store(false, Ordering::Relaxed);
        world.sleep(2 * LATE).await;
        assert_eq!(pair().await, (in_order.clone(), in_order), "it has answered");
    });
}
