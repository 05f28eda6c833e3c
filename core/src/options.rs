//! The options of clients and locks. One check turns them into settings that cannot be wrong.
//!
//! [`OPTIONS`] is the one table of options, and the Python and Node packages read it. [`Options`] has the values that a
//! caller gave, [`Settings`] has a value for every option. This file uses no clock and no socket: a wrong option is
//! refused before anything is sent.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::texts::texts;

/// With a shorter ttl, a round trip and the drift use too much of the lease.
const TTL_LEAST: Duration = Duration::from_millis(100);
/// A crashed holder blocks others for this long. `auto_renew` keeps a lock for longer.
pub(crate) const TTL_MOST: Duration = hours(24);
/// Longer than the pauses of most programs, and short enough to wait for after a crash.
const TTL_DEFAULT: Duration = Duration::from_secs(10);

/// Longer timeouts are cut to this one, so that no sum of an instant and a timeout can overflow. In practice, a wait of
/// a year does not differ from an endless one.
const TIMEOUT_MOST: Duration = hours(24 * 365);

/// A longer `max_hold` is cut to this one, which is as good as none, for the same reason. No server keeps a fence for longer.
pub(crate) const MAX_HOLD_MOST: Duration = hours(24 * 365 * 10);

/// A busy machine, the server's or this one, may delay a healthy node's answer by this much.
const NODE_TIMEOUT_DEFAULT_LEAST: Duration = Duration::from_millis(50);
/// An explicit release waits at least this long: its caller wants to know the result, and the wait costs nothing.
const RELEASE_TIMEOUT_LEAST: Duration = Duration::from_millis(250);
/// One tick of the timers. With less, every node would count as unresponsive.
const NODE_TIMEOUT_LEAST: Duration = Duration::from_millis(1);
/// Several round trips between continents. With more, one hung node would delay a short wait.
const NODE_TIMEOUT_DEFAULT_MOST: Duration = Duration::from_millis(500);
/// The default leaves most of the ttl after the wait for one node.
const NODE_TIMEOUTS_PER_TTL: u32 = 4;

/// A round trip within one building is a hundredth of this, and a connection takes four.
const CONNECT_TIMEOUT_LEAST: Duration = Duration::from_millis(50);
/// After this time, an error helps the caller more than a longer wait for a connection.
const CONNECT_TIMEOUT_MOST: Duration = Duration::from_secs(60);
/// Four round trips between continents, with one lost packet.
pub(crate) const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);

/// Below the limits of firewalls and load balancers, of which the shortest common one is 4 min.
pub(crate) const KEEPALIVE_DEFAULT: Duration = Duration::from_secs(60);
/// The unit of the operating system.
const KEEPALIVE_LEAST: Duration = Duration::from_secs(1);
/// The operating system's limit is 32,767 s.
const KEEPALIVE_MOST: Duration = hours(9);

/// Enough for a program that mostly does other things between its locks. More callers share the background's connections.
pub(crate) const MAX_CONNECTIONS_DEFAULT: usize = 8;
/// A thread pool is seldom larger, and servers have limits too.
const MAX_CONNECTIONS_MOST: u32 = 64;

/// A node that needs a longer quarantine should be taken off the list.
const RESTART_DELAY_MOST: Duration = hours(24 * 7);

/// The longest least time.
const AT_LEAST_MOST: Duration = hours(24 * 7);

/// With less than half the ttl to rely on, a renewal that is not answered at once would end the lock.
const MARGINS_PER_TTL: u32 = 2;

/// A fence must outlive its lease, even if an extension is sent just before the lease ends.
const FENCE_TTLS_PER_TTL: u32 = 2;
/// Keys of unused names should expire. One hour is much longer than the clock error of servers.
const FENCE_TTL_DEFAULT_LEAST: Duration = hours(1);
/// Servers refuse expiry times that overflow their clock. Ten years are far below that, and enough.
const FENCE_TTL_MOST: Duration = hours(24 * 365 * 10);

/// Every stored value contains the label, so a longer label would slow down each command.
const LABEL_MOST_BYTES: usize = 128;

const fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}

/// The form of a lock on its nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// A token and a fence, with a ttl.
    #[default]
    Plain,
    /// The older protocol: the key's value is the time at which it expires.
    Setnx,
}

texts! { Protocol, all, name: Plain = "plain", Setnx = "setnx" }

impl Protocol {
    /// Returns the protocol of this name.
    pub(crate) fn named(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
            let message = format!(
                "there is no protocol {name:?}; leave it out, or use setnx for a key that is shared with code which \
                 still uses SETNX and GETSET"
            );
            Error::invalid(message).with_option("protocol")
        })
    }

    /// Refuses an extension in a protocol whose keys do not show their owner.
    pub(crate) fn allows_extend(self) -> Result<(), Error> {
        self.must_be_plain("extend is not available with protocol \"setnx\"; choose a ttl longer than the work")
    }

    /// Refuses to return a fence in a protocol without fences.
    pub(crate) fn allows_fence(self) -> Result<(), Error> {
        self.must_be_plain("fence is not available with protocol \"setnx\"")
    }

    /// Refuses to look at a lock in a protocol whose keys may be out of date.
    pub(crate) fn allows_is_locked(self) -> Result<(), Error> {
        self.must_be_plain(
            "protocol \"setnx\" does not tell whether the lock is held: its keys stay after they are out of date; try to \
             acquire it",
        )
    }

    fn must_be_plain(self, message: &str) -> Result<(), Error> {
        if self == Self::Plain { Ok(()) } else { Err(Error::invalid(message)) }
    }

    /// Returns whether the background extends the lock.
    fn checked_auto_renew(self, auto_renew: Option<bool>) -> Result<bool, Error> {
        if self == Self::Setnx && auto_renew == Some(true) {
            let rest = " is on, but a lock with protocol \"setnx\" cannot be renewed; remove it and choose a ttl longer \
                        than the work";
            return Err(Error::about("auto_renew", rest));
        }
        Ok(self == Self::Plain && auto_renew.unwrap_or(true))
    }

    /// Returns an option that only the plain protocol keeps.
    fn kept(self, option: Option<Duration>) -> Option<Duration> {
        option.filter(|_| self == Self::Plain)
    }

    fn check_nodes(self, nodes: usize) -> Result<(), Error> {
        if self == Self::Setnx && nodes > 1 {
            let message = format!(
                "the protocol setnx is for one node, but there are {nodes}: older clients take the lock on one server \
                 alone; make a client for that server"
            );
            return Err(Error::invalid(message).with_option("protocol"));
        }
        Ok(())
    }
}

/// The kind of an option's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A duration.
    Duration,
    /// A duration, or none to wait forever.
    Timeout,
    /// On or off.
    Flag,
    /// A whole number.
    Count,
    /// A text.
    Text,
    /// The path of a file.
    Path,
}

/// The value of an option, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of every kind: the built-in default, whatever the client's is.
    BuiltIn,
    /// Of [`Kind::Duration`].
    Duration(Duration),
    /// Of [`Kind::Timeout`].
    Timeout(Option<Duration>),
    /// Of [`Kind::Flag`].
    Flag(bool),
    /// Of [`Kind::Count`].
    Count(u32),
    /// Of [`Kind::Text`].
    Text(String),
    /// Of [`Kind::Path`].
    Path(PathBuf),
}

/// Makes values of what options are kept as.
macro_rules! values {
    ($($given:ident: $type:ty => $value:expr;)+) => {$(
        impl From<$type> for Value {
            fn from($given: $type) -> Self {
                $value
            }
        }
    )+};
}

values! {
    duration: Duration => Self::Duration(duration);
    timeout: Option<Duration> => Self::Timeout(timeout);
    flag: bool => Self::Flag(flag);
    count: u32 => Self::Count(count);
    text: Arc<str> => Self::Text(text.as_ref().to_owned());
    path: Arc<Path> => Self::Path(path.to_path_buf());
    protocol: Protocol => Self::Text(protocol.name().to_owned());
}

/// The objects that an option can be given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A lock, or a client as the default of its locks.
    Lock,
    /// A client only.
    Client,
}

/// An option, as callers in other languages see it.
#[derive(Debug)]
pub struct Row {
    /// Its name in Rust.
    pub name: &'static str,
    /// The kind of its values.
    pub kind: Kind,
    /// The objects that it can be given to.
    pub scope: Scope,
    /// Sets the option. Fails for a value of another kind and for an unknown text. Limits are checked later.
    pub set: fn(&mut Options, Value) -> Result<(), Error>,
    /// Returns the value that was given; `None` if the option was left out.
    pub given: fn(&Options) -> Option<Value>,
}

/// Makes the options of a table. Each has a name, a type, a scope, a kind, and a conversion from a value of this kind
/// to the type.
macro_rules! options {
    ($($option:ident: $type:ty, $scope:ident, $kind:ident($given:ident) => $value:expr;)+) => {
        /// Every option, in the order of the documentation.
        pub const OPTIONS: &[Row] = &[$(Row {
            name: stringify!($option),
            kind: Kind::$kind,
            scope: Scope::$scope,
            set: |options, value| {
                match value {
                    Value::$kind($given) => options.$option = Some($value),
                    Value::BuiltIn => {
                        options.$option = None;
                        options.built_in.push(stringify!($option));
                    }
                    _ => return Err(Error::about(stringify!($option), " is of another type")),
                }
                Ok(())
            },
            given: |options| options.$option.clone().map(Value::from),
        }),+];

        /// The values that a caller gave; `None` for an option that it left out.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Options {
            $(pub(crate) $option: Option<$type>,)+
            /// The options that were given as their built-in default, which is then stronger than the client's.
            pub(crate) built_in: Vec<&'static str>,
        }

        impl Options {
            /// Fills in `defaults` for the options that were left out.
            pub(crate) fn or(&self, defaults: &Self) -> Self {
                let has = |option, is_given| if is_given || self.built_in.contains(&option) { self } else { defaults };
                Self {
                    $($option: has(stringify!($option), self.$option.is_some()).$option.clone(),)+
                    built_in: Vec::new(),
                }
            }
        }
    };
}

options! {
    ttl: Duration, Lock, Duration(given) => given;
    timeout: Option<Duration>, Lock, Timeout(given) => given;
    auto_renew: bool, Lock, Flag(given) => given;
    max_hold: Duration, Lock, Duration(given) => given;
    at_least: Duration, Lock, Duration(given) => given;
    margin: Duration, Lock, Duration(given) => given;
    node_timeout: Duration, Lock, Duration(given) => given;
    restart_delay: Duration, Lock, Duration(given) => given;
    fence_ttl: Duration, Lock, Duration(given) => given;
    label: Arc<str>, Lock, Text(given) => given.into();
    protocol: Protocol, Lock, Text(given) => Protocol::named(&given)?;
    connect_timeout: Duration, Client, Duration(given) => given;
    keepalive: Duration, Client, Duration(given) => given;
    max_connections: u32, Client, Count(given) => given;
    key_prefix: Arc<str>, Client, Text(given) => given.into();
    password_file: Arc<Path>, Client, Path(given) => given.into();
    tls_ca: Arc<Path>, Client, Path(given) => given.into();
    tls_cert: Arc<Path>, Client, Path(given) => given.into();
    tls_key: Arc<Path>, Client, Path(given) => given.into();
    tls_server_name: Arc<str>, Client, Text(given) => given.into();
}

/// The options in force: complete, and within every limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// How long the server keeps the key, in whole milliseconds.
    pub(crate) ttl: Duration,
    /// How long an acquire waits for the lock; `None` waits forever, zero tries once.
    pub(crate) timeout: Option<Duration>,
    pub(crate) auto_renew: bool,
    /// The longest time for which the lock may be held; at least the ttl.
    pub(crate) max_hold: Option<Duration>,
    /// How long others are kept from the lock after it was acquired, even if it is released.
    pub(crate) at_least: Duration,
    /// By how much the lock counts as lost before its keys can expire; at most half the ttl.
    pub(crate) margin: Duration,
    /// The longest wait for one node's vote; shorter than the ttl.
    pub(crate) node_timeout: Duration,
    /// How long a node's grants do not count after its restart; zero is off.
    pub(crate) restart_delay: Duration,
    /// How long a node remembers the fence, in whole milliseconds; at least twice the ttl.
    pub(crate) fence_ttl: Duration,
    /// The label beside the token; empty is none.
    pub(crate) label: Arc<str>,
    pub(crate) protocol: Protocol,
}

impl Settings {
    /// Returns how long the nodes keep the key of a lock that was just acquired. What is left of the least time at the
    /// release, its key must have.
    pub(crate) fn key_ttl(&self) -> Duration {
        self.ttl.max(self.at_least)
    }

    /// Returns the longest wait for one node's answer to an explicit release.
    pub(crate) fn release_timeout(&self) -> Duration {
        self.node_timeout.max(RELEASE_TIMEOUT_LEAST)
    }
}

impl Options {
    /// Returns them with what a candidate's lock has whatever its client says: it is waited for without end, and kept for
    /// as long as its body runs.
    pub(crate) fn of_term(&self) -> Self {
        Self {
            timeout: Some(None),
            auto_renew: Some(true),
            max_hold: Some(MAX_HOLD_MOST),
            at_least: Some(Duration::ZERO),
            protocol: Some(Protocol::Plain),
            ..self.clone()
        }
    }

    /// Refuses options of the lock itself that mean nothing in its protocol. Such options of its client are ignored.
    pub(crate) fn check_own(&self, in_force: &Self) -> Result<(), Error> {
        if in_force.protocol != Some(Protocol::Setnx) {
            return Ok(());
        }
        let given = [
            ("at_least", self.at_least.is_some()),
            ("margin", self.margin.is_some()),
            ("fence_ttl", self.fence_ttl.is_some()),
            ("label", self.label.is_some()),
        ];
        for (option, is_given) in given {
            if is_given {
                return Err(Error::about(option, " means nothing with protocol \"setnx\"; remove it"));
            }
        }
        Ok(())
    }

    /// Fills in the defaults. Refuses options that cannot work with this many nodes.
    pub(crate) fn check(&self, default_label: &Arc<str>, nodes: usize) -> Result<Settings, Error> {
        let protocol = self.protocol.unwrap_or_default();
        protocol.check_nodes(nodes)?;
        let ttl = checked_ttl(self.ttl.unwrap_or(TTL_DEFAULT))?;
        let at_least = checked_at_least(protocol.kept(self.at_least).unwrap_or_default())?;
        Ok(Settings {
            ttl,
            timeout: self.timeout.flatten().map(checked_timeout),
            auto_renew: protocol.checked_auto_renew(self.auto_renew)?,
            max_hold: self.max_hold.map(|max_hold| checked_max_hold(max_hold, ttl)).transpose()?,
            at_least,
            margin: checked_margin(protocol.kept(self.margin).unwrap_or_default(), ttl)?,
            node_timeout: checked_node_timeout(self.node_timeout, ttl)?,
            restart_delay: checked_restart_delay(self.restart_delay.unwrap_or(ttl))?,
            fence_ttl: checked_fence_ttl(protocol.kept(self.fence_ttl), ttl, at_least)?,
            label: checked_label(self.label.as_ref().unwrap_or(default_label))?,
            protocol,
        })
    }
}

/// Returns a timeout that cannot make a sum overflow.
pub(crate) fn checked_timeout(timeout: Duration) -> Duration {
    timeout.min(TIMEOUT_MOST)
}

/// Returns the error for a duration beyond its limits, with the limits and some advice.
fn out_of_range(option: &'static str, given: Duration, limits: &str, advice: impl fmt::Display) -> Error {
    Error::about(option, format!(" is {}, but must be {limits}; {advice}", readable(given)))
}

/// Checks the limits of a ttl, also for an extension with a ttl.
pub(crate) fn checked_ttl(ttl: Duration) -> Result<Duration, Error> {
    let whole = whole_millis(ttl);
    if whole < TTL_LEAST || ttl > TTL_MOST {
        let limits = format!("from {} to {}", readable(TTL_LEAST), readable(TTL_MOST));
        return Err(out_of_range("ttl", ttl, &limits, "to keep a lock for longer, extend it or leave ")
            .mention("auto_renew", " on"));
    }
    Ok(whole)
}

fn checked_max_hold(max_hold: Duration, ttl: Duration) -> Result<Duration, Error> {
    if max_hold < ttl {
        let limits = format!("at least the ttl ({})", readable(ttl));
        return Err(out_of_range("max_hold", max_hold, &limits, "raise it or shorten the ttl"));
    }
    Ok(max_hold.min(MAX_HOLD_MOST))
}

/// Checks the limit of the time that a lock is kept at least.
fn checked_at_least(at_least: Duration) -> Result<Duration, Error> {
    if at_least > AT_LEAST_MOST {
        return Err(out_of_range("at_least", at_least, &format!("at most {}", readable(AT_LEAST_MOST)), "shorten it"));
    }
    Ok(at_least)
}

/// Checks the limit of a margin, also of that of a lock that is extended to another `ttl`.
pub(crate) fn checked_margin(margin: Duration, ttl: Duration) -> Result<Duration, Error> {
    let most = ttl / MARGINS_PER_TTL;
    if margin > most {
        let limits = format!("at most half the ttl ({})", readable(most));
        return Err(out_of_range("margin", margin, &limits, "shorten it or use a longer ttl"));
    }
    Ok(margin)
}

fn checked_node_timeout(node_timeout: Option<Duration>, ttl: Duration) -> Result<Duration, Error> {
    let default = || (ttl / NODE_TIMEOUTS_PER_TTL).clamp(NODE_TIMEOUT_DEFAULT_LEAST, NODE_TIMEOUT_DEFAULT_MOST);
    let node_timeout = node_timeout.unwrap_or_else(default);
    if node_timeout < NODE_TIMEOUT_LEAST || node_timeout >= ttl {
        let limits = format!("at least {} and less than the ttl ({})", readable(NODE_TIMEOUT_LEAST), readable(ttl));
        return Err(out_of_range("node_timeout", node_timeout, &limits, advise_default(default())));
    }
    Ok(node_timeout)
}

/// Checks the limits of the time for one connection, an option of a client.
pub(crate) fn checked_connect_timeout(connect_timeout: Option<Duration>) -> Result<Duration, Error> {
    let connect_timeout = connect_timeout.unwrap_or(CONNECT_TIMEOUT_DEFAULT);
    if !(CONNECT_TIMEOUT_LEAST..=CONNECT_TIMEOUT_MOST).contains(&connect_timeout) {
        let limits = format!("from {} to {}", readable(CONNECT_TIMEOUT_LEAST), readable(CONNECT_TIMEOUT_MOST));
        return Err(out_of_range("connect_timeout", connect_timeout, &limits, advise_default(CONNECT_TIMEOUT_DEFAULT)));
    }
    Ok(connect_timeout)
}

/// Checks the limits of the time after which an idle connection is probed, an option of a client.
pub(crate) fn checked_keepalive(keepalive: Option<Duration>) -> Result<Duration, Error> {
    let keepalive = keepalive.unwrap_or(KEEPALIVE_DEFAULT);
    if !keepalive.is_zero() && !(KEEPALIVE_LEAST..=KEEPALIVE_MOST).contains(&keepalive) {
        let limits = format!("0 for off, or from {} to {}", readable(KEEPALIVE_LEAST), readable(KEEPALIVE_MOST));
        return Err(out_of_range("keepalive", keepalive, &limits, advise_default(KEEPALIVE_DEFAULT)));
    }
    Ok(keepalive)
}

/// Checks how many callers may drive connections of their own, an option of a client.
pub(crate) fn checked_max_connections(max_connections: Option<u32>) -> Result<usize, Error> {
    match max_connections {
        None => Ok(MAX_CONNECTIONS_DEFAULT),
        Some(count @ 1..=MAX_CONNECTIONS_MOST) => Ok(count as usize),
        Some(count) => {
            let rest = format!(
                " is {count}, but must be from 1 to {MAX_CONNECTIONS_MOST}; leave it out for {MAX_CONNECTIONS_DEFAULT}"
            );
            Err(Error::about("max_connections", rest))
        }
    }
}

/// Checks the options of a client that name files or a server.
pub(crate) fn check_paths(options: &Options) -> Result<(), Error> {
    let paths = [
        ("password_file", &options.password_file),
        ("tls_ca", &options.tls_ca),
        ("tls_cert", &options.tls_cert),
        ("tls_key", &options.tls_key),
    ];
    for (option, path) in paths {
        if path.as_deref().is_some_and(|path| path.as_os_str().is_empty()) {
            return Err(Error::about(option, " is empty, but must be the path of a file; leave it out for none"));
        }
    }
    Ok(())
}

fn checked_restart_delay(restart_delay: Duration) -> Result<Duration, Error> {
    if restart_delay > RESTART_DELAY_MOST {
        let limits = format!("at most {}", readable(RESTART_DELAY_MOST));
        let advice = "it needs to be no longer than the longest ttl in use";
        return Err(out_of_range("restart_delay", restart_delay, &limits, advice));
    }
    Ok(restart_delay)
}

/// Checks the limits of the time for which a fence is remembered: it outlives the key of its lock.
fn checked_fence_ttl(fence_ttl: Option<Duration>, ttl: Duration, at_least: Duration) -> Result<Duration, Error> {
    let (kept, longer) = if at_least > ttl { (at_least, "at_least") } else { (ttl, "the ttl") };
    let least = kept * FENCE_TTLS_PER_TTL;
    let default = least.max(FENCE_TTL_DEFAULT_LEAST);
    let fence_ttl = fence_ttl.unwrap_or(default);
    let whole = whole_millis(fence_ttl);
    if whole < least || fence_ttl > FENCE_TTL_MOST {
        let most = readable(FENCE_TTL_MOST);
        let limits = format!("at least twice {longer} ({}) and at most {most}", readable(least));
        return Err(out_of_range("fence_ttl", fence_ttl, &limits, advise_default(default)));
    }
    Ok(whole)
}

fn checked_label(label: &Arc<str>) -> Result<Arc<str>, Error> {
    if label.len() > LABEL_MOST_BYTES {
        let length = label.len();
        let rest =
            format!(" has {length} bytes of UTF-8, but at most {LABEL_MOST_BYTES} are allowed; use a shorter label");
        return Err(Error::about("label", rest));
    }
    if let Some(control) = label.chars().find(|c| c.is_control()) {
        let rest = format!(" contains the control character {control:?}; use a label of one line of plain text");
        return Err(Error::about("label", rest));
    }
    Ok(Arc::clone(label))
}

fn advise_default(default: Duration) -> String {
    format!("leave it out for {}", readable(default))
}

/// Cuts a duration to whole milliseconds, the unit of the servers. Does not round up, because a holder must never rely
/// on more time than it has asked the server for.
fn whole_millis(duration: Duration) -> Duration {
    Duration::new(duration.as_secs(), duration.subsec_millis() * 1_000_000)
}

/// Writes a duration in the largest unit that divides it, as in `90 s` or `24 h`.
fn readable(duration: Duration) -> String {
    const UNITS: [(u128, &str); 4] = [(3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")];
    let millis = duration.as_millis();
    let unit = UNITS.iter().find(|(size, _)| millis > 0 && millis.is_multiple_of(*size));
    match unit {
        Some((size, unit)) if whole_millis(duration) == duration => format!("{} {unit}", millis / size),
        _ => format!("{duration:?}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;
    use serde_json::{Map, Value as Json};

    use super::*;
    use crate::error::ErrorKind;

    #[derive(Deserialize)]
    struct Table {
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Case {
        name: String,
        options: Map<String, Json>,
        ok: Option<Effective>,
        error: Option<Refusal>,
    }

    #[derive(Deserialize)]
    struct Effective {
        ttl_ms: f64,
        timeout_ms: Option<f64>,
        auto_renew: bool,
        max_hold_ms: Option<f64>,
        #[serde(default)]
        at_least_ms: f64,
        #[serde(default)]
        margin_ms: f64,
        node_timeout_ms: f64,
        restart_delay_ms: f64,
        fence_ttl_ms: f64,
        label: Option<String>,
        protocol: Option<String>,
        /// `None` for the default.
        connect_timeout_ms: Option<f64>,
        keepalive_ms: Option<f64>,
        max_connections: Option<usize>,
        #[serde(flatten)]
        _of_client: Map<String, Json>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Refusal {
        code: String,
        mentions: Vec<String>,
    }

    fn ms(millis: f64) -> Duration {
        Duration::from_secs_f64(millis / 1000.0)
    }

    fn default_label() -> Arc<str> {
        "host:1".into()
    }

    /// Returns the options of a case, as a caller in another language gives them.
    fn options(given: &Map<String, Json>) -> Result<Options, Error> {
        let mut options = Options::default();
        for (option, value) in given {
            let row = OPTIONS.iter().find(|row| row.name == option.trim_end_matches("_ms")).expect("an option");
            let duration = || ms(value.as_f64().expect("a number"));
            let value = match row.kind {
                Kind::Duration => Value::Duration(duration()),
                Kind::Timeout => Value::Timeout((!value.is_null()).then(duration)),
                Kind::Flag => Value::Flag(value.as_bool().expect("true or false")),
                Kind::Count => Value::Count(value.as_u64().expect("a number").try_into().unwrap()),
                Kind::Text => Value::Text(value.as_str().expect("a text").to_owned()),
                Kind::Path => Value::Path(value.as_str().expect("a path").into()),
            };
            (row.set)(&mut options, value)?;
        }
        Ok(options)
    }

    fn settings(effective: Effective) -> Settings {
        Settings {
            ttl: ms(effective.ttl_ms),
            timeout: effective.timeout_ms.map(ms),
            auto_renew: effective.auto_renew,
            max_hold: effective.max_hold_ms.map(ms),
            at_least: ms(effective.at_least_ms),
            margin: ms(effective.margin_ms),
            node_timeout: ms(effective.node_timeout_ms),
            restart_delay: ms(effective.restart_delay_ms),
            fence_ttl: ms(effective.fence_ttl_ms),
            label: effective.label.map_or_else(default_label, Into::into),
            protocol: effective.protocol.map_or(Protocol::Plain, |name| Protocol::named(&name).unwrap()),
        }
    }

    #[test]
    fn table() {
        let table: Table = serde_json::from_str(include_str!("../../tests/conformance/tables/options.json")).unwrap();
        // Prefixes are checked where names are, whether a certificate has its key where addresses are, and whether it can
        // have a name where TLS is.
        let elsewhere = ["key_prefix", "tls_cert", "tls_key", "tls_server_name"];
        let is_checked_elsewhere = |key: &String| elsewhere.contains(&key.as_str());
        for case in table.cases.into_iter().filter(|case| !case.options.keys().any(is_checked_elsewhere)) {
            let checked = options(&case.options).and_then(|options| {
                check_paths(&options)?;
                let connecting = checked_connect_timeout(options.connect_timeout)?;
                let connections = checked_max_connections(options.max_connections)?;
                let of_client = (connecting, checked_keepalive(options.keepalive)?, connections);
                Ok((options.check(&default_label(), 1)?, of_client))
            });
            match (checked, case.ok, case.error) {
                (Ok(checked), Some(ok), None) => {
                    let connecting = ok.connect_timeout_ms.map_or(CONNECT_TIMEOUT_DEFAULT, ms);
                    let keepalive = ok.keepalive_ms.map_or(KEEPALIVE_DEFAULT, ms);
                    let connections = ok.max_connections.unwrap_or(MAX_CONNECTIONS_DEFAULT);
                    assert_eq!(checked, (settings(ok), (connecting, keepalive, connections)), "{}", case.name);
                }
                (Err(error), None, Some(refusal)) => {
                    assert_eq!(error.code(), refusal.code, "{}", case.name);
                    assert_eq!(error.option(), refusal.mentions[0].split(' ').next(), "{}", case.name);
                    for text in refusal.mentions {
                        assert!(error.to_string().contains(&text), "{}: {error} lacks {text:?}", case.name);
                    }
                }
                (result, ..) => panic!("{}: {result:?}", case.name),
            }
        }
    }

    #[test]
    fn a_value_of_another_kind_is_refused() {
        for row in OPTIONS {
            let wrong = if row.kind == Kind::Flag { Value::Text("true".into()) } else { Value::Flag(true) };
            let error = (row.set)(&mut Options::default(), wrong).unwrap_err();
            assert!(error.to_string().starts_with(row.name), "{error}");
        }
    }

    #[test]
    fn options_of_a_lock_override_those_of_its_client() {
        let client = Options {
            ttl: Some(ms(2000.0)),
            timeout: Some(Some(ms(1.0))),
            auto_renew: Some(false),
            label: Some("client".into()),
            ..Options::default()
        };
        assert_eq!(Options::default().or(&client), client);
        assert_eq!(client.clone().or(&Options::default()), client);
        let lock = Options { timeout: Some(None), label: Some("lock".into()), ..Options::default() }.or(&client);
        assert_eq!(lock.timeout, Some(None), "`wait forever` is a value, too");
        assert_eq!(lock.label.as_deref(), Some("lock"));
        assert_eq!((lock.ttl, lock.auto_renew), (client.ttl, client.auto_renew));
    }

    #[test]
    fn the_older_protocol_has_one_node_and_no_renewal() {
        let setnx = Options { protocol: Some(Protocol::Setnx), ..Options::default() };
        let refusal = |options: &Options, nodes| options.check(&default_label(), nodes).unwrap_err().to_string();
        assert!(!setnx.check(&default_label(), 1).unwrap().auto_renew);
        assert!(refusal(&setnx, 3).contains("one node, but there are 3"));
        let renewed = Options { auto_renew: Some(true), ..setnx.clone() };
        assert!(refusal(&renewed, 1).contains("cannot be renewed"));
        let client = Options { auto_renew: Some(true), ..Options::default() };
        assert!(refusal(&setnx.clone().or(&client), 1).contains("cannot be renewed"));
        let others = Options { margin: Some(ms(4000.0)), fence_ttl: Some(ms(5000.0)), ..Options::default() };
        let short = Options { ttl: Some(ms(5000.0)), ..setnx.clone() }.or(&others);
        assert!(short.check(&default_label(), 1).is_ok(), "what its client gives to others is not for it");
        let lock = Options { protocol: Some(Protocol::Plain), ..Options::default() }.or(&setnx);
        assert!(lock.check(&default_label(), 3).unwrap().auto_renew, "the lock overrides its client");
    }

    #[test]
    fn durations_in_messages() {
        assert_eq!(readable(hours(24)), "24 h");
        assert_eq!(readable(ms(90_000.0)), "90 s");
        assert_eq!(readable(ms(1500.0)), "1500 ms");
        assert_eq!(readable(ms(99.5)), "99.5ms");
        assert_eq!(readable(Duration::ZERO), "0ns");
    }

    fn any_duration() -> impl Strategy<Value = Duration> {
        prop_oneof![
            (0..700_000_000_u64).prop_map(Duration::from_millis),
            (0..200_000_000_000_u64).prop_map(Duration::from_nanos),
            Just(Duration::MAX),
        ]
    }

    proptest! {
        #[test]
        fn settings_cannot_be_wrong(
            ttl in prop::option::of(any_duration()),
            timeout in prop::option::of(prop::option::of(any_duration())),
            max_hold in prop::option::of(any_duration()),
            at_least in prop::option::of(any_duration()),
            margin in prop::option::of(any_duration()),
            node_timeout in prop::option::of(any_duration()),
            restart_delay in prop::option::of(any_duration()),
            fence_ttl in prop::option::of(any_duration()),
        ) {
            let others = Options { at_least, margin, ..Options::default() };
            let options = Options { ttl, timeout, max_hold, node_timeout, restart_delay, fence_ttl, ..others };
            if let Ok(s) = options.check(&default_label(), 3) {
                prop_assert!(s.ttl >= TTL_LEAST && s.ttl <= TTL_MOST && s.ttl.subsec_nanos() % 1_000_000 == 0);
                prop_assert!(s.timeout.is_none_or(|timeout| timeout <= TIMEOUT_MOST));
                prop_assert!(s.max_hold.is_none_or(|max_hold| max_hold >= s.ttl && max_hold <= MAX_HOLD_MOST));
                prop_assert!(s.at_least <= AT_LEAST_MOST);
                prop_assert!(s.margin <= s.ttl / 2);
                prop_assert!(s.node_timeout >= NODE_TIMEOUT_LEAST && s.node_timeout < s.ttl);
                prop_assert!(s.restart_delay <= RESTART_DELAY_MOST);
                prop_assert!(s.fence_ttl >= 2 * s.key_ttl() && s.fence_ttl <= FENCE_TTL_MOST);
            }
        }

        #[test]
        fn any_ttl_within_the_limits_works_alone(millis in 100..=86_400_000_u64) {
            let options = Options { ttl: Some(Duration::from_millis(millis)), ..Options::default() };
            prop_assert!(options.check(&default_label(), 3).is_ok());
        }
    }

    #[test]
    fn calls_that_the_older_protocol_lacks_are_refused_with_the_reason() {
        assert!(Protocol::Plain.allows_extend().and(Protocol::Plain.allows_fence()).is_ok());
        for (refused, reason) in [
            (Protocol::Setnx.allows_extend(), "extend is not available"),
            (Protocol::Setnx.allows_fence(), "fence is not available"),
        ] {
            let error = refused.expect_err(reason);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
}
