//! Nodes that fail, at random times, and get well again.

use std::time::Duration;

use redlock::testing::simulation::{Node, Shards, World};
use redlock_history::Kind;

use crate::book::{Shared, nanos, seen};
use crate::dice::Dice;
use crate::moves;
use crate::plan::{Plan, Trouble, Unusual};
use crate::shape::{CONTESTED, NAMES};

/// No node's clock is set further from where it was at the start: far less than nodes remember fences.
const STEP_MOST_MICROS: i64 = 20 * 60 * 1_000_000;

/// For how long a node stays well if keys live for long. Releases that are owed to one that answers for a moment only are
/// dropped when they have been pending for a ttl, although a create that it executes late makes a key after that.
const PAYING: Duration = Duration::from_secs(6);

/// Makes trouble for as long as it is polled.
pub(crate) async fn trouble(world: World, plan: &Plan, book: &Shared, mut dice: Dice) {
    if !world.clusters().is_empty() {
        return moves::trouble(world, plan, book, dice).await;
    }
    if matches!(plan.trouble, Trouble::None | Trouble::Network) {
        return std::future::pending().await;
    }
    let minority = (plan.nodes.len() - 1) / 2;
    // With one node, that one; it is the majority.
    let most = if plan.majority_fails { plan.nodes.len() } else { minority.max(1) };
    let (mut steps, mut mended) = (vec![0; plan.nodes.len()], vec![None; plan.nodes.len()]);
    loop {
        world.sleep(dice.millis(0, plan.calm_ms)).await;
        if plan.trouble == Trouble::Meddling && dice.chance(800) {
            let node = dice.index(plan.nodes.len());
            meddle(&world, plan, node, book, &mut dice);
            continue;
        }
        if plan.trouble == Trouble::Clocks && dice.chance(600) {
            let node = dice.index(plan.nodes.len());
            step(&world, node, book, &mut steps[node], &mut dice);
            continue;
        }
        let victims = dice.between(1, most as u64);
        let mut victims: Vec<usize> = (0..victims).map(|_| dice.index(plan.nodes.len())).collect();
        victims.sort_unstable();
        victims.dedup();
        victims.retain(|victim| !plan.shows_leaks() || mended[*victim].is_none_or(|at| world.now() >= at + PAYING));
        for victim in &victims {
            fail(&world.nodes()[*victim], plan, &mut dice);
        }
        let from_ns = nanos(world.now());
        let down = dice.pick(&[
            Duration::ZERO,
            Duration::from_millis(dice.clone().between(1, 300)),
            plan.ttl / 2,
            Duration::from_secs(2),
            Duration::from_secs(6),
        ]);
        world.sleep(down).await;
        for victim in victims {
            mend(&world.nodes()[victim]);
            mended[victim] = Some(world.now());
        }
        if plan.trouble == Trouble::Amnesia {
            // For as long as any lock lives: bars hold back for less.
            let to_ns = nanos(world.now() + 2 * plan.ttl + Duration::from_secs(1));
            book.open().history.push(seen(Kind::Lapse, "a fault", "", from_ns, to_ns, None));
        }
        // Whoever waits has seen each restart, and takes nothing before a quorum's bars are over.
        if dice.chance(50) || (plan.forgets() && dice.chance(500)) {
            world.sleep(plan.ttl * 4).await;
        }
    }
}

/// Gives nodes replicas, and has them hang up, for as long as it is polled.
pub(crate) async fn oddities(world: World, plan: &Plan, mut dice: Dice) {
    let odd = plan.unusual;
    for (index, node) in world.nodes().iter().enumerate() {
        node.lack(index < odd.lack_info, index < odd.lack_tracking);
    }
    // Servers of clusters have replicas anyway.
    let odd = Unusual { replicas: odd.replicas && world.clusters().is_empty(), ..odd };
    if !odd.replicas && !odd.hang_ups {
        return std::future::pending().await;
    }
    loop {
        world.sleep(dice.millis(0, plan.calm_ms)).await;
        let node = &world.nodes()[dice.index(world.nodes().len())];
        if odd.replicas && (!odd.hang_ups || dice.chance(500)) {
            node.attach_replica();
        } else {
            node.hang_up(true);
            let longest = dice.pick(&[0, 100, 3_000]);
            world.sleep(dice.millis(0, longest)).await;
            node.hang_up(false);
        }
    }
}

/// Deletes or overwrites a key, as anybody could.
fn meddle(world: &World, plan: &Plan, node: usize, book: &Shared, dice: &mut Dice) {
    let node = &world.nodes()[node];
    let (name, key) = if dice.chance(plan.mix.permits / 2) {
        let (key, name) = (dice.below(u64::from(plan.mix.usual_permits)), dice.pick(&NAMES[..CONTESTED]));
        (name, slot_key(name, key))
    } else {
        let name =
            if plan.mix.sets > 0 && dice.chance(300) { dice.pick(&NAMES) } else { dice.pick(&NAMES[..CONTESTED]) };
        (name, name.to_owned())
    };
    match dice.below(4) {
        0 => node.take(key.as_bytes(), dice.millis(10, 2_000)),
        _ => node.delete(key.as_bytes()),
    }
    // Whoever was granted it before may not have it any more.
    let now_ns = nanos(world.now());
    book.open().history.push(seen(Kind::Lapse, "a meddler", name, now_ns, now_ns, None));
}

/// The lock key of a slot. No name here has braces that are not a hash tag.
fn slot_key(name: &str, slot: u64) -> String {
    if name.contains('}') { format!("redlock:slot:{slot}::{name}") } else { format!("redlock:slot:{slot}:{{{name}}}") }
}

fn step(world: &World, node: usize, book: &Shared, stepped: &mut i64, dice: &mut Dice) {
    let most = dice.pick(&[500_000, 5_000_000, STEP_MOST_MICROS]);
    let to = (*stepped + dice.around_zero(most)).clamp(-STEP_MOST_MICROS, STEP_MOST_MICROS);
    step_clock(world, node, book, to - *stepped);
    *stepped = to;
}

/// Sets a node's clock. Where it goes back, every key that stands there lives as much longer. A holder that was killed,
/// or stood still for a ttl, never knows, and the promise leaves such clocks out.
pub(crate) fn step_clock(world: &World, index: usize, book: &Shared, micros: i64) {
    let node = &world.nodes()[index];
    if micros < 0 {
        book.open().prolonged.extend(node.keys().into_iter().map(|(key, value)| (index, key, value)));
    }
    node.step_clock(micros);
}

pub(crate) fn fail(node: &Node, plan: &Plan, dice: &mut Dice) {
    if dice.chance(500) {
        node.freeze();
    } else {
        node.crash(!plan.forgets() || dice.chance(500));
    }
}

pub(crate) fn mend(node: &Node) {
    node.start();
    node.thaw();
}

/// Ends all connections to clusters. A process that stood still while a primary was replaced and came back learns of it
/// only with its next connection, and then does not count its grants for a while.
pub(crate) fn end_connections(world: &World) {
    if world.clusters().is_empty() {
        return;
    }
    for node in world.nodes() {
        node.hang_up(true);
        node.hang_up(false);
    }
}

/// Mends everything.
pub(crate) fn heal(world: &World) {
    for node in world.nodes() {
        node.hang_up(false);
        mend(node);
    }
    world.clusters().iter().for_each(Shards::settle);
}
