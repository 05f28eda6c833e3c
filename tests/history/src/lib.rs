//! Judges a recorded history of lock calls.
//!
//! A program that drives locks (simulation, conformance drivers, chaos) writes one [`Record`] for each call that
//! returned and each reported loss, with times of one clock. [`check`] then says whether the promises held.
//!
//! | rule | what it demands | what it needs |
//! | --- | --- | --- |
//! | unique | no two acquisitions of a name have the same fence | |
//! | order | no acquire and no extension that is invoked after an acquire has returned succeeds with a smaller fence | divisions |
//! | exclusion | no two clients hold one name at the same time, and none gets it that was superseded before; see below | lapses |
//! | too soon | no client gets a lock while it is reserved: for its least time, or for the margin of a holder that lost it | lapses, reasons |
//! | told late | a holder is notified of its loss by the end of its validity, plus a slack for scheduling; lost is final | losses, stops |
//! | store | what the lock protects accepts no smaller fence after a larger one, refuses no other, and loses no write | writes, reads |
//! | leaks | a key on a node belongs to a hold or an attempt that has not ended | keys |
//! | limit | a call returns, within a limit that counts from the last outage or stop that it met | outages, stops, calls that never returned |
//! | idle | no call waits for long while no client has the lock, within a limit that counts in the same way | as above |
//! | quorum | that many nodes granted an acquire its fence while it was pending | grants |
//!
//! An impossible record (a release of a lock that was never acquired, a return before its invocation) is a violation
//! too: a checker that skips what it does not understand proves nothing.
//!
//! Only a call that returned with success carries an obligation. An acquire that was cancelled or failed is recorded
//! with `ok: false`, or not at all. A call that had not returned at the end of the history, or was killed, has no
//! `return_ns`. Whether these had an effect is unknown: such an acquire may have any fence, and a write may have been
//! accepted at any time after its invocation, or never.
//!
//! A lock of several names is judged under each of them, together with the locks of that name alone. Each slot of a
//! semaphore is judged as a lock of its own. So at most as many clients hold a semaphore as the largest of its callers
//! allows: a slot that is not below its caller's permits is an impossible record. A call waits for several names only
//! while all of them are free, and for a permit while one of the slots is.
//!
//! # What a lapse excuses
//!
//! A hold consists of claims: each begins when a call returned, the acquire or an extension, and lasts until the next
//! one does. A claim says that a quorum of nodes had the keys at some time after its call was invoked, and would keep
//! them until the validity ended. So two claims overlap only if keys were lost at some time from the earlier invocation
//! of the two calls to the later beginning of the two claims. The overlap is excused if and only if a lapse of that
//! name, or of all names, touches this time; both ends count.
//!
//! A lapse must therefore last as long as grants cannot be relied on. Grants from before its end are excused until they
//! are confirmed: two claims whose acquires or extensions were both invoked after it may not overlap. A lock that was
//! superseded when it was won is excused in the same way, and so is one that was acquired too soon: no extension makes up
//! for keys that were lost since the acquire. A lapse excuses no fence.
//!
//! # What a division excuses
//!
//! While two servers grant, each for itself, their fences are not ordered. A smaller fence is excused if the larger one
//! was returned, and the call with the smaller one was invoked, between the two ends of one division, both included.
//! Fences stay unique.
//!
//! # What a stop excuses
//!
//! A stop that began by the end of the slack excuses a late notification: the slack then counts from its end. Outages
//! and stops excuse calls that take long in the same way. A stop does not excuse an extension that was invoked too
//! late and yet succeeded.
//!
//! Only the times of the records matter, and not their order. If two events have the same time, either may have come
//! first, and a history that is right in one of the orders is right. A check costs O(n log n).
//!
//! The program `redlock-history` reads the same records as JSON lines from its standard input.

mod check;
mod exclusion;
mod hold;
mod idle;
mod leak;
mod order;
mod period;
mod record;
mod report;
mod reserve;
mod single;
mod store;
mod violation;

pub use check::{Rules, check};
pub use record::{Kind, Reason, Record, read};
pub use report::{Report, Waits};
pub use violation::*;
