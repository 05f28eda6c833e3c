//! Errors: one error type, one list of codes.
//!
//! An [`Error`] reports the failure, the lock, each node's answer and what to do next. Code branches on its
//! [`ErrorKind`]. Two kinds differ only if a caller acts differently on them. An error never contains a token, a
//! password or the raw text of a server's reply.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::texts::texts;

/// The reason why a call failed. It is stable: [`ErrorKind::code`] is the same text in Rust, Python and Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Others held the lock until the timeout was over. Try again later, or wait longer.
    Timeout,
    /// No quorum of nodes could be asked, or would answer: nodes refuse, hang, load their data, are read-only or out of
    /// memory, or are in quarantine after a restart. Whether the lock is free is unknown.
    Unavailable,
    /// Nodes that refuse these credentials or rights (NOAUTH, WRONGPASS, NOPERM) rule out a quorum.
    Forbidden,
    /// The lock was lost while it was held; [`Error::reason`] says why.
    Lost,
    /// The lock is not held, so it cannot be extended, checked or released.
    NotHeld,
    /// This lock object already holds the lock. One object is one holder.
    AlreadyHeld,
    /// The client is closed, or redlock is shut down in this process.
    Closed,
    /// An option, a name or an address is wrong. The call sent nothing.
    InvalidArgument,
    /// A bug in redlock. What the call acquired was released.
    Internal,
}

texts! {
    ErrorKind,
    /// Every kind, in the order of the documentation.
    pub all,
    /// Returns the stable code of this kind: `timeout`, `unavailable`, `forbidden`, `lost`, `not_held`, `already_held`,
    /// `closed`, `invalid_argument` or `internal`.
    code: Timeout = "timeout", Unavailable = "unavailable", Forbidden = "forbidden", Lost = "lost", NotHeld = "not_held",
    AlreadyHeld = "already_held", Closed = "closed", InvalidArgument = "invalid_argument", Internal = "internal",
}

impl ErrorKind {
    /// Returns whether the same call may succeed later without a change to the program or its rights.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Timeout | Self::Unavailable)
    }
}

/// The reason why a held lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// Its validity ended, and no other reason is known.
    Expired,
    /// A quorum of answers showed another owner.
    Taken,
    /// No quorum answered the renewals in time.
    Unreachable,
    /// It was held for as long as `max_hold` allows.
    MaxHold,
    /// Its keys were deleted, flushed or evicted before they expired.
    Deleted,
}

texts! {
    LostReason,
    /// Every reason, in the order of the documentation.
    pub all,
    /// Returns the stable text of this reason: `expired`, `taken`, `unreachable`, `max_hold` or `deleted`.
    as_str: Expired = "expired", Taken = "taken", Unreachable = "unreachable", MaxHold = "max_hold", Deleted = "deleted",
}

impl LostReason {
    /// Whether the time of the lock was over, as far as is known, and no other owner was seen.
    pub(crate) const fn is_by_time(self) -> bool {
        matches!(self, Self::Expired | Self::Unreachable | Self::MaxHold)
    }

    /// Keys that are gone when their time `is_over` have expired.
    pub(crate) fn or_expired(self, is_over: bool) -> Self {
        if self == Self::Deleted && is_over { Self::Expired } else { self }
    }
}

/// One node's answer, as part of an [`Error`].
///
/// # Examples
///
/// ```
/// use redlock::{AnswerKind, NodeAnswer};
///
/// fn page_for(answer: &NodeAnswer) -> Option<&'static str> {
///     match &answer.kind {
///         AnswerKind::Forbidden(_) => Some("the login was changed"),
///         AnswerKind::Refused(code) if code == "OOM" => Some("the server is full"),
///         AnswerKind::Unreachable | AnswerKind::Silent => Some("the server is down"),
///         _ => None,
///     }
/// }
/// # let _ = page_for;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeAnswer {
    /// The node's address without user name or password.
    pub node: String,
    /// What it answered, for a program.
    pub kind: AnswerKind,
    /// The answer in a few words, for a person: `held`, `shared, and a writer waits for it`, `no answer within
    /// 500 ms`, `refused: READONLY`. The words may change in any release.
    pub answer: String,
}

/// What one node answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AnswerKind {
    /// It did what it was asked for: it granted, extended or released the lock.
    Done,
    /// Another holder has the lock there.
    Held,
    /// Nobody has the lock there: the key is absent.
    Free,
    /// It was not asked, or has not answered yet.
    Pending,
    /// It could not be reached, or the connection ended before the answer.
    Unreachable,
    /// It did not answer in time.
    Silent,
    /// It refused with this error code, such as `READONLY` or `OOM`.
    Refused(String),
    /// It refused these credentials or rights with this error code: `NOAUTH`, `WRONGPASS` or `NOPERM`.
    Forbidden(String),
    /// It restarted, and its votes count again after this time.
    Quarantined(Duration),
    /// Its vote does not count: it is a replica, the same server as another node, sent a reply that is not understood,
    /// or does not have the slot of the name.
    Uncounted,
}

/// The holder of a lock that was not acquired in time, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldBy {
    pub(crate) label: Option<String>,
    pub(crate) ttl_left: Option<Duration>,
    pub(crate) is_this_process: bool,
}

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_this_process { "held by this process" } else { "held by another owner" })?;
        match (&self.label, self.ttl_left) {
            (Some(label), Some(left)) => write!(f, " (label {label:?}, ttl left {left:.1?})"),
            (Some(label), None) => write!(f, " (label {label:?})"),
            (None, Some(left)) => write!(f, " (ttl left {left:.1?})"),
            (None, None) => Ok(()),
        }
    }
}

/// How a call to acquire waited. Hidden: for the bindings.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// Whether others had the lock, or were taking it.
    #[doc(hidden)]
    pub is_contended: bool,
    /// How often it waited, also for nodes.
    #[doc(hidden)]
    pub waits: u32,
}

/// A failed call.
///
/// `Display` writes one sentence for the person on call: the lock's name, the failure, what to do next, and each node's
/// answer.
///
/// # Examples
///
/// ```
/// use redlock::{ErrorKind, Redlock};
///
/// let error = Redlock::new("redis://localhost/?timeout=5").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidArgument);
/// assert_eq!(error.code(), "invalid_argument");
/// ```
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    /// The message without the names of options, because each language writes them in its own way.
    message: String,
    /// The positions in the message where an option is named, with this option.
    mentions: Vec<(usize, &'static str)>,
    option: Option<String>,
    name: Option<String>,
    reason: Option<LostReason>,
    nodes: Vec<NodeAnswer>,
    holder: HeldBy,
    waited: Option<Waited>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Returns the same error for another caller who shares the result.
    pub(crate) fn for_another(&self) -> Self {
        Self(self.0.clone())
    }

    /// Returns the kind of failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the stable code of the kind; see [`ErrorKind::code`].
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.0.kind.code()
    }

    /// Returns whether the same call may succeed later; see [`ErrorKind::is_retryable`].
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.kind.is_retryable()
    }

    /// Returns the lock's name, with invalid UTF-8 replaced; `None` if the error is not about one lock.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Returns the reason why the lock was lost; `Some` only if the kind is [`ErrorKind::Lost`], and then always.
    #[must_use]
    pub fn reason(&self) -> Option<LostReason> {
        self.0.reason
    }

    /// Returns the option or argument that is wrong, such as `ttl`; `None` if the failure is not about one. An unknown
    /// option is spelled as the caller spelled it.
    ///
    /// # Examples
    ///
    /// ```
    /// use redlock::Redlock;
    /// use std::time::Duration;
    ///
    /// let error = Redlock::builder().nodes("memory://a").ttl(Duration::ZERO).build().unwrap_err();
    /// assert_eq!(error.option(), Some("ttl"));
    /// ```
    #[must_use]
    pub fn option(&self) -> Option<&str> {
        self.0.option.as_deref()
    }

    /// Returns each node's answer in the last round, in the order in which the nodes were given.
    #[must_use]
    pub fn nodes(&self) -> &[NodeAnswer] {
        &self.0.nodes
    }

    /// Returns the label of the lock's holder, if the kind is [`ErrorKind::Timeout`] and the holder has one. It is that of
    /// the last look at the nodes, as is all that the error tells of the holder.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock::Error> {
    /// use redlock::Redlock;
    /// use std::time::Duration;
    ///
    /// let redlock = Redlock::builder().nodes("memory://holder").label("worker 7").build()?;
    /// let guard = redlock.lock("job").await?;
    /// let error = redlock.lock("job").timeout(Duration::ZERO).acquire().await.unwrap_err();
    /// assert_eq!(error.holder_label(), Some("worker 7"));
    /// assert!(error.holder_ttl_left().is_some() && error.is_held_by_this_process());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn holder_label(&self) -> Option<&str> {
        self.0.holder.label.as_deref()
    }

    /// Returns how long the holder's key lasts without another renewal, if the kind is [`ErrorKind::Timeout`] and it is
    /// known.
    #[must_use]
    pub fn holder_ttl_left(&self) -> Option<Duration> {
        self.0.holder.ttl_left
    }

    /// Returns whether the kind is [`ErrorKind::Timeout`] and this process holds the lock itself.
    #[must_use]
    pub fn is_held_by_this_process(&self) -> bool {
        self.0.holder.is_this_process
    }

    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            mentions: Vec::new(),
            option: None,
            name: None,
            reason: None,
            nodes: Vec::new(),
            holder: HeldBy::default(),
            waited: None,
            source: None,
        }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// Makes an error about `option`. The message begins with the option's name.
    pub(crate) fn about(option: &'static str, rest: impl AsRef<str>) -> Self {
        Self::invalid("").mention(option, rest).with_option(option)
    }

    /// Makes the error for a panic. No panic may unwind into callers of other languages.
    pub(crate) fn panicked() -> Self {
        let message = "bug in redlock: the call panicked and its lock was released; please report it with the panic \
                       message on standard error";
        Self::new(ErrorKind::Internal, message)
    }

    pub(crate) fn lost(reason: LostReason) -> Self {
        let message = match reason {
            LostReason::Expired => "the lock expired while it was held",
            LostReason::Taken => "the lock is held by another owner",
            LostReason::Unreachable => "the lock expired because no quorum of nodes answered its renewals",
            LostReason::MaxHold => "the lock reached ",
            LostReason::Deleted => "the lock's keys were deleted before they expired",
        };
        let mut error = Self::new(ErrorKind::Lost, message);
        error.0.reason = Some(reason);
        if reason == LostReason::MaxHold { error.mention("max_hold", "") } else { error }
    }

    /// Appends how long before its release a lock was lost.
    pub(crate) fn lost_before_release(mut self, ago: Duration) -> Self {
        self.0.message = format!("{}, {ago:.1?} before its release", self.0.message);
        self
    }

    /// Appends the name of an option, and `rest`, to the message.
    pub(crate) fn mention(mut self, option: &'static str, rest: impl AsRef<str>) -> Self {
        self.0.mentions.push((self.0.message.len(), option));
        self.and(rest.as_ref())
    }

    /// Appends a text.
    pub(crate) fn and(mut self, text: &str) -> Self {
        self.0.message.push_str(text);
        self
    }

    /// Appends a text that has the names of options in braces.
    pub(crate) fn hint(self, text: &'static str) -> Self {
        let add = |error: Self, (index, piece): (usize, _)| {
            if index % 2 == 0 { error.and(piece) } else { error.mention(piece, "") }
        };
        text.split(['{', '}']).enumerate().fold(self, add)
    }

    pub(crate) fn with_option(mut self, option: impl Into<String>) -> Self {
        self.0.option = Some(option.into());
        self
    }

    pub(crate) fn with_name(mut self, name: &[u8]) -> Self {
        self.0.name = Some(String::from_utf8_lossy(name).into_owned());
        self
    }

    pub(crate) fn with_nodes(mut self, nodes: Vec<NodeAnswer>) -> Self {
        self.0.nodes = nodes;
        self
    }

    pub(crate) fn with_holder(mut self, holder: HeldBy) -> Self {
        self.0.holder = holder;
        self
    }

    /// Sets how the failed acquire waited.
    pub(crate) fn set_waited(&mut self, waited: Waited) {
        self.0.waited = Some(waited);
    }

    /// Returns how the failed acquire waited; `None` if the error is not that of an acquire that had begun.
    pub(crate) fn waited(&self) -> Option<Waited> {
        self.0.waited
    }

    /// Returns the whole message, with options as `spell` writes them. Hidden: for the bindings.
    #[doc(hidden)]
    #[must_use]
    pub fn spelled(&self, spell: fn(&str) -> String) -> String {
        let mut text = self.0.name.as_ref().map_or_else(String::new, |name| format!("lock {name:?}: "));
        text += &self.message(spell);
        for (i, NodeAnswer { node, answer, .. }) in self.0.nodes.iter().enumerate() {
            text.extend([if i == 0 { " [" } else { "; " }, node, ": ", answer]);
        }
        if !self.0.nodes.is_empty() {
            text += "]";
        }
        text
    }

    fn message(&self, spell: fn(&str) -> String) -> String {
        let mut message = self.0.message.clone();
        for &(at, option) in self.0.mentions.iter().rev() {
            message.insert_str(at, &spell(option));
        }
        message
    }

    /// Sets a source, which other errors may have, too.
    pub(crate) fn with_source(mut self, source: Arc<dyn StdError + Send + Sync>) -> Self {
        self.0.source = Some(source);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelled(str::to_owned))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("code", &self.code())
            .field("name", &self.0.name)
            .field("message", &self.message(str::to_owned))
            .field("option", &self.0.option)
            .field("reason", &self.0.reason)
            .field("nodes", &self.0.nodes)
            .finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
