//! A run that is told step by step, and judged as the run of a seed.

use std::time::Duration;

use redlock::Guard;
use redlock::testing::simulation::Node;

use crate::book::{Pen, Pending, Tenure, Won, nanos};
use crate::faults;
use crate::run::Stage;
use crate::shape::{NAMES, Shape};

/// The processes and nodes of a run in which nothing happens by itself.
#[derive(Debug)]
pub struct Story<'a>(pub(crate) Stage<'a>);

/// A lock that a process of the story holds.
#[derive(Debug)]
pub struct Hold {
    guard: Guard,
    tenure: Tenure,
}

impl Hold {
    /// Drops the guard.
    pub fn give_back(mut self) {
        self.tenure.release();
        drop(self.guard);
    }

    /// Says that it gives the lock back, and does not.
    pub fn keep(mut self) {
        self.tenure.release();
        std::mem::forget(self.guard);
    }
}

impl Story<'_> {
    /// A node, by index.
    #[must_use]
    pub fn node(&self, index: usize) -> &Node {
        &self.0.world.nodes()[index]
    }

    /// Sets a node's clock forward, or back.
    pub fn step_clock(&self, node: usize, micros: i64) {
        faults::step_clock(&self.0.world, node, &self.0.book, micros);
    }

    /// Lets time pass.
    pub async fn wait(&self, duration: Duration) {
        self.0.world.sleep(duration).await;
    }

    /// Has a process acquire the first name, without renewals.
    ///
    /// # Panics
    ///
    /// If it cannot have the lock.
    pub async fn hold(&self, process: usize, ttl: Duration) -> Hold {
        let life = &self.0.roles[process].life;
        let pen = Pen {
            world: self.0.world.clone(),
            book: self.0.book.clone(),
            fate: life.fate.clone(),
            label: life.label.clone(),
        };
        let pending = Pending::new(&pen, &Shape::One(NAMES[0]), ttl);
        let lock = life.clients.get(0).lock(NAMES[0]).ttl(ttl).auto_renew(false);
        let guard = lock.acquire().await.expect("the lock is free");
        let until_ns = pen.now_ns() + nanos(guard.remaining());
        let (fence, slot) = (guard.fence(), guard.slot());
        let tenure = pending.win(&Won { fence, slot, until_ns, least_until_ns: None, margin_ns: None, is_term: false });
        Hold { guard, tenure }
    }

    /// Stops a process.
    pub fn stop(&self, process: usize) {
        self.0.roles[process].life.program.stop();
    }

    /// Continues a process.
    pub fn go_on(&self, process: usize) {
        self.0.roles[process].life.program.go_on();
    }

    /// Kills a process, whose `hold` ends with it. Another process takes its place.
    pub fn kill(&mut self, process: usize, hold: Hold) {
        let role = &mut self.0.roles[process];
        role.life.fate.kill();
        role.life.program.kill();
        drop(hold);
        role.start_anew();
    }
}
