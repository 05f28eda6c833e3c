//! The SETNX protocol: a key whose value is the second in which its lock ends.
//!
//! Time is whole seconds and the same for everybody. A client that begins in second `now` puts `now + ttl + 1` under the
//! key; a key is *expired* in the seconds after its value, and its client *holds* the lock in the seconds before it. What
//! clients do differs by [`Way`]; between any two of their commands anything else may happen, a crash included.
//!
//! A client of an older way *stalls* when a second begins while it is in an attempt or a release, which is from its look
//! at the clock to the last command that relies on it. How many seconds may begin so is for the model to say. Holding a
//! lock for as long as one likes is no stall: it is over at its value, whether or not its client has noticed.

use std::fmt;

use crate::search::Model;

/// A second of the clock that all share.
pub type Second = u8;

/// How clients acquire and release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// SETNX; GET; if it is expired DEL, and SETNX again.
    DelSetnx,
    /// SETNX; GET; if it is expired GETSET, and won if what that replaced is expired, or gone.
    GetsetExpired,
    /// SETNX; GET; if it is expired GETSET, and won if what that replaced is what GET had seen.
    GetsetSame,
    /// One script acquires and one releases, each in one step on the server's clock.
    OneStep,
    /// As that, but the release deletes the key whenever it arrives.
    OneStepBlind,
}

/// The clients and the limits of what may happen to them.
#[derive(Clone, Debug)]
pub struct Setnx<const N: usize> {
    /// How each client goes about it, and its ttl.
    pub clients: [(Way, Second); N],
    /// How many seconds may begin during an attempt of an older way.
    pub stall: Second,
    /// How many seconds may begin during a release of an older way.
    pub release_stall: Second,
    /// How often the release of a one-step client may arrive, having been sent again.
    pub copies: u8,
    /// The key at the start: what a client that crashed has left, or nothing.
    pub left: Option<Second>,
    /// The first second, and the last.
    pub time: (Second, Second),
}

/// What the key is and where everybody stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<const N: usize> {
    now: Second,
    /// Its value, and whether the server deletes it when that is over.
    key: Option<(Second, bool)>,
    clients: [Client; N],
    /// Releases on their way: the ends of the locks that they are for, in order.
    releases: Vec<Second>,
}

/// Where a client stands; `value` is what it puts under the key, `at` the second in which it looked at the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    Idle,
    Began { at: Second },
    Denied { at: Second },
    FoundExpired { at: Second, seen: Second },
    Deleted { at: Second },
    Holding { value: Second },
    Releasing { at: Second },
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// The next second begins.
    Time(Second),
    /// One of the clients, by its place, does something.
    Of(usize, Did),
    /// The release for the lock with this end arrives; whether it deletes the key.
    Arrives(Second, bool),
    /// That release is lost.
    Lost(Second),
}

/// What a client does, and what comes of it.
#[derive(Clone, Copy, Debug)]
pub enum Did {
    /// It looks at the clock, to acquire.
    Begin(Second),
    /// SETNX of this value; whether it has set it.
    Setnx(Second, bool),
    /// GET; the value, and whether it is expired.
    Get(Option<Second>, bool),
    /// DEL, to acquire.
    Clear,
    /// GETSET of this value; what it replaced, and whether the client takes that for a lock won.
    Getset(Second, Option<Second>, bool),
    /// The script acquires in one step, until the second given; or it is denied.
    Acquire(Option<Second>),
    /// It looks at the clock, to release: whether the lock is still its own.
    End(bool),
    /// DEL, to release.
    Del,
    /// It sends a release.
    Send,
    /// It crashes, and starts anew without knowing anything.
    Crash,
}

impl<const N: usize> State<N> {
    /// How many clients hold the lock.
    #[must_use]
    pub fn holders(&self) -> usize {
        self.clients.iter().filter(|client| matches!(client, Client::Holding { value } if self.now < *value)).count()
    }

    /// The key's value, if there is one.
    #[must_use]
    pub fn value(&self) -> Option<Second> {
        self.key.map(|(value, _)| value)
    }

    /// The second in which the server deletes the key, if it does.
    #[must_use]
    pub fn deleted_at(&self) -> Option<Second> {
        self.key.filter(|(_, ends)| *ends).map(|(value, _)| value + 1)
    }

    /// The second that it is.
    #[must_use]
    pub fn now(&self) -> Second {
        self.now
    }

    /// The same in another second, by which nobody has done anything.
    #[must_use]
    pub fn at(&self, now: Second) -> Self {
        let key = self.key.filter(|_| self.deleted_at().is_none_or(|second| now < second));
        Self { now, key, ..self.clone() }
    }

    /// An older way's SETNX or GETSET, which knows of no expiry on the server.
    pub fn put(&mut self, value: Second) {
        self.key = Some((value, false));
    }

    /// One-step acquire, as in `setnx_acquire.lua`: the end of the lock, if it is won.
    pub fn acquire(&mut self, ttl: Second) -> Option<Second> {
        if self.value().is_some_and(|value| self.now <= value) {
            return None;
        }
        let value = self.now + ttl + 1;
        self.key = Some((value, true));
        Some(value)
    }

    /// One-step release of the lock that ends then, as in `setnx_release.lua`: whether it has deleted the key.
    pub fn release(&mut self, end: Second) -> bool {
        self.now < end && self.key.take().is_some()
    }

    /// What a client does next if it does not crash, where it stands then, and what has become of everything else.
    fn step_of(&self, client: Client, way: Way, ttl: Second) -> (Did, Client, Self) {
        let mut next = self.clone();
        let (did, place) = match client {
            Client::Idle if way.is_one_step() => {
                let end = next.acquire(ttl);
                (Did::Acquire(end), end.map_or(Client::Idle, |value| Client::Holding { value }))
            }
            Client::Holding { value } if way.is_one_step() => {
                next.releases.push(if way == Way::OneStepBlind { Second::MAX } else { value });
                (Did::Send, Client::Idle)
            }
            Client::Holding { value } => {
                let ours = self.now < value;
                (Did::End(ours), if ours { Client::Releasing { at: self.now } } else { Client::Idle })
            }
            Client::Releasing { .. } => {
                next.key = None;
                (Did::Del, Client::Idle)
            }
            Client::Idle => (Did::Begin(self.now + ttl + 1), Client::Began { at: self.now }),
            Client::Began { at } | Client::Denied { at } | Client::FoundExpired { at, .. } | Client::Deleted { at } => {
                next.attempt(client, way, at, at + ttl + 1)
            }
        };
        (did, place, next)
    }

    /// The next command of an attempt of an older way, which began in second `at`.
    fn attempt(&mut self, client: Client, way: Way, at: Second, value: Second) -> (Did, Client) {
        let before = self.value();
        let won = |won: bool| if won { Client::Holding { value } } else { Client::Idle };
        match client {
            Client::Denied { .. } => {
                let seen = before.filter(|seen| at > *seen);
                (Did::Get(before, seen.is_some()), seen.map_or(Client::Idle, |seen| Client::FoundExpired { at, seen }))
            }
            Client::FoundExpired { .. } if way == Way::DelSetnx => {
                self.key = None;
                (Did::Clear, Client::Deleted { at })
            }
            Client::FoundExpired { seen, .. } => {
                self.put(value);
                let wins = match way {
                    Way::GetsetSame => before == Some(seen),
                    _ => before.is_none_or(|before| at > before),
                };
                (Did::Getset(value, before, wins), won(wins))
            }
            _ => {
                let set = before.is_none();
                if set {
                    self.put(value);
                }
                let again = !set && client == Client::Began { at };
                (Did::Setnx(value, set), if again { Client::Denied { at } } else { won(set) })
            }
        }
    }

    /// What becomes of the releases on their way.
    fn deliver(&self) -> Vec<(Step, Self)> {
        let mut steps = Vec::new();
        for (i, &end) in self.releases.iter().enumerate() {
            let mut lost = self.clone();
            lost.releases.remove(i);
            let mut arrived = lost.clone();
            let deletes = arrived.release(end);
            steps.push((Step::Arrives(end, deletes), arrived));
            steps.push((Step::Lost(end), lost));
        }
        steps
    }
}

impl Way {
    fn is_one_step(self) -> bool {
        matches!(self, Self::OneStep | Self::OneStepBlind)
    }
}

impl Client {
    /// Whether it can be in second `now` what it is, if it may stall so long in an attempt, and so in a release.
    fn may_be(self, now: Second, stall: Second, release_stall: Second) -> bool {
        match self {
            Self::Idle | Self::Holding { .. } => true,
            Self::Began { at } | Self::Denied { at } | Self::FoundExpired { at, .. } | Self::Deleted { at } => {
                now - at <= stall
            }
            Self::Releasing { at } => now - at <= release_stall,
        }
    }
}

impl<const N: usize> Setnx<N> {
    fn next_second(&self, state: &State<N>) -> Option<(Step, State<N>)> {
        let now = state.now + 1;
        let may_be = |client: &Client| client.may_be(now, self.stall, self.release_stall);
        if now > self.time.1 || !state.clients.iter().all(may_be) {
            return None;
        }
        let mut next = state.at(now);
        // What cannot do anything any more only makes states differ.
        next.releases.retain(|end| now < *end);
        Some((Step::Time(now), next))
    }
}

impl<const N: usize> Model for Setnx<N> {
    type State = State<N>;
    type Step = Step;

    fn starts(&self) -> Vec<State<N>> {
        let key = self.left.map(|value| (value, false));
        vec![State { now: self.time.0, key, clients: [Client::Idle; N], releases: Vec::new() }]
    }

    fn steps(&self, state: &State<N>) -> Vec<(Step, State<N>)> {
        let mut steps = Vec::new();
        for (i, (way, ttl)) in self.clients.into_iter().enumerate() {
            let client = state.clients[i];
            let (did, place, mut next) = state.step_of(client, way, ttl);
            next.clients[i] = place;
            if matches!(did, Did::Send) {
                let end = next.releases.pop().into_iter();
                next.releases.extend(end.flat_map(|end| std::iter::repeat_n(end, self.copies.into())));
                next.releases.sort_unstable();
            }
            steps.push((Step::Of(i, did), next));
            if client != Client::Idle {
                let mut next = state.clone();
                next.clients[i] = Client::Idle;
                steps.push((Step::Of(i, Did::Crash), next));
            }
        }
        steps.extend(state.deliver());
        steps.extend(self.next_second(state));
        steps
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(now) => write!(f, "-- it is {now}"),
            Self::Of(client, did) => write!(f, "{}: {did}", ["A", "B", "C"][*client]),
            Self::Arrives(end, true) => write!(f, "the release of the lock until {end} deletes the key"),
            Self::Arrives(end, false) => write!(f, "the release of the lock until {end} deletes nothing"),
            Self::Lost(end) => write!(f, "the release of the lock until {end} is lost"),
        }
    }
}

impl fmt::Display for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: Option<Second>| value.map_or("nothing".to_owned(), |value| value.to_string());
        match *self {
            Self::Begin(value) => write!(f, "looks at the clock; its value is {value}"),
            Self::Setnx(value, true) => write!(f, "SETNX {value} -> 1, so it holds the lock"),
            Self::Setnx(value, false) => write!(f, "SETNX {value} -> 0"),
            Self::Get(seen, true) => write!(f, "GET -> {}, which is over", shown(seen)),
            Self::Get(seen, false) => write!(f, "GET -> {}, so it is denied", shown(seen)),
            Self::Clear => f.write_str("DEL, because that was over"),
            Self::Getset(value, before, true) => {
                write!(f, "GETSET {value} -> {}, so it holds the lock", shown(before))
            }
            Self::Getset(value, before, false) => write!(f, "GETSET {value} -> {}, so it is denied", shown(before)),
            Self::Acquire(Some(end)) => write!(f, "acquires the lock until {end}"),
            Self::Acquire(None) => f.write_str("is denied"),
            Self::End(true) => f.write_str("looks at the clock; the lock is still its own"),
            Self::End(false) => f.write_str("looks at the clock; the lock is over"),
            Self::Del => f.write_str("DEL, to release it"),
            Self::Send => f.write_str("sends its release"),
            Self::Crash => f.write_str("crashes"),
        }
    }
}
