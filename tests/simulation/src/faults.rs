//! Nodes that fail, at random times, and get well again.

use std::time::Duration;

use redlock::simulation::{Node, World};
use tokio::time::sleep;

use crate::client::NAMES;
use crate::dice::Dice;
use crate::plan::{Plan, Trouble};

/// Makes trouble for as long as it is polled.
pub(crate) async fn trouble(world: World, plan: &Plan, mut dice: Dice) {
    if matches!(plan.trouble, Trouble::None | Trouble::Network) {
        return std::future::pending().await;
    }
    let minority = (plan.nodes.len() - 1) / 2;
    // With one node, that one; it is the majority.
    let most = if plan.majority_fails { plan.nodes.len() } else { minority.max(1) };
    loop {
        sleep(dice.millis(0, 3_000)).await;
        let victims = dice.between(1, most as u64);
        let mut victims: Vec<usize> = (0..victims).map(|_| dice.index(plan.nodes.len())).collect();
        victims.sort_unstable();
        victims.dedup();
        for victim in &victims {
            fail(&world.nodes()[*victim], plan, &mut dice);
        }
        sleep(dice.pick(&[
            Duration::ZERO,
            Duration::from_millis(dice.clone().between(1, 300)),
            plan.ttl / 2,
            Duration::from_secs(2),
            Duration::from_secs(6),
        ]))
        .await;
        for victim in victims {
            mend(&world.nodes()[victim]);
        }
        // Whoever waits has seen each restart, and takes nothing before a quorum's bars are over.
        if dice.chance(50) {
            sleep(plan.ttl * 4).await;
        }
    }
}

fn fail(node: &Node, plan: &Plan, dice: &mut Dice) {
    if plan.trouble == Trouble::Meddling && dice.chance(600) {
        let name = dice.pick(&NAMES).as_bytes();
        match dice.below(4) {
            0 => node.step_clock(dice.around_zero(5_000_000)),
            1 => node.take(name, dice.millis(10, 2_000)),
            _ => node.delete(name),
        }
    } else if dice.chance(500) {
        node.freeze();
    } else {
        node.crash(plan.trouble != Trouble::Amnesia || dice.chance(500));
    }
}

fn mend(node: &Node) {
    node.start();
    node.thaw();
}

/// Mends everything.
pub(crate) fn heal(world: &World) {
    for node in world.nodes() {
        mend(node);
    }
}
