//! Judges a recorded history of lock calls.
//!
//! Whoever drives locks (simulation, conformance drivers, demo, chaos) writes down one [`Record`] per call that came
//! back and per loss that was told, all with the time of one clock. [`check`] then says whether the promises held.
//!
//! | rule | what it asks for | what it needs |
//! | --- | --- | --- |
//! | unique | no two acquisitions of a name have the same fence | |
//! | order | nothing that is invoked after an acquire has returned succeeds with a smaller fence: no acquire, and no extension | |
//! | exclusion | no two hold one name at the same time, and none gets it that was superseded before; see below | lapses |
//! | told late | a holder hears of its loss by the end of its validity, plus a slack for scheduling; lost is final | losses, stops |
//! | store | what the lock protects accepts no smaller fence after a larger one, refuses no other, and loses no write | writes, reads |
//! | leaks | a key that a node has belongs to a hold or an attempt that is going on | keys |
//! | limit | a call comes back, within a limit that counts from the last outage or stop that it met | outages, stops, calls that never came back |
//! | idle | nobody waits for long while nobody has the lock, within a limit that counts as that of calls does | as above |
//! | quorum | that many nodes granted an acquire its fence while it was going on | grants |
//!
//! A record that cannot be (a release of what was never acquired, a return before its invocation) is a violation too: a
//! checker that skips what it does not understand proves nothing.
//!
//! Only what came back with success carries an obligation. An acquire that was cancelled or failed is recorded with
//! `ok: false`, or not at all; a call that had not come back at the end of the history, or was killed, has no
//! `return_ns`. Whether these had an effect is unknown: an acquire of that kind may have any fence, and a write may have
//! been accepted at any time after its invocation, or never.
//!
//! # What a lapse excuses
//!
//! A hold consists of claims: each begins when a call returned, the acquire or an extension, and lasts until the next
//! one does. A claim says that a quorum of nodes had the keys at some time after its call was invoked, and would keep
//! them until the validity ended. So two claims overlap only if keys got lost at some time from the sooner invocation of
//! the two calls to the later beginning of the two claims. The overlap is excused if and only if a lapse of that name,
//! or of all names, touches this time; both ends count.
//!
//! A lapse must therefore last as long as grants cannot be relied on. Those that were made before it ended are excused
//! until they are confirmed: when it is over, two whose acquires or extensions were both invoked after it may not
//! overlap. A lock that was won when it was over is excused in the same way, fences never are.
//!
//! # What a stop excuses
//!
//! Being told late, if it began by the end of the slack: the slack then counts from its end. In the same way outages and
//! stops excuse calls that take long. It excuses no extension that was invoked too late and yet succeeded.
//!
//! The order of the records means nothing, their times do. Of two things at the same time nobody can say which came
//! first, and what is right in either order is right. A check costs O(n log n).
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
mod store;
mod violation;

pub use check::{Rules, check};
pub use record::{History, Kind, ReadError, Record};
pub use report::{Report, Waits};
pub use violation::{Flaw, Hold, Violation};
