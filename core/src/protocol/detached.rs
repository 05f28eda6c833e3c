//! PURE: a detached lock as a text, for whoever attaches it.
//!
//! The text is `redlock1.`, and then in base64url: the shape and the names, the token, the fence, the times, and a checksum.
//! It is a credential, because the token is in it: no log, no error and no `Debug` shows it. It has neither addresses nor
//! logins. Another form begins with another number.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::options::{MAX_HOLD_MOST, OPTIONS, Options, Protocol, TTL_MOST};
use crate::protocol::request::FENCES;
use crate::protocol::token::Token;

const BEGIN: &str = "redlock1.";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A detached lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Detached {
    pub(crate) kind: Kind,
    /// The whole names, with the prefix of the client that has acquired the lock.
    pub(crate) names: Vec<Vec<u8>>,
    pub(crate) token: Token,
    /// Whether attaching it leaves the token as it is, so that its text stays good. Not in the text.
    pub(crate) keeps_token: bool,
    pub(crate) fence: u64,
    /// What the lock counts as on the nodes: its fence, or a larger one (see `hold::extend`).
    pub(crate) level: u64,
    /// When it was acquired, and when the keys of a quorum expire, by the wall clock and in microseconds.
    pub(crate) acquired: u64,
    pub(crate) end: u64,
    /// The ttl of renewals.
    pub(crate) ttl: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Duration,
    pub(crate) margin: Duration,
    pub(crate) label: Arc<str>,
}

/// The shape of a detached lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    One,
    All,
    /// With the number of permits, and the slot.
    Semaphore(u32, u32),
    Shared,
}

impl Detached {
    /// Returns the slot of a semaphore.
    pub(crate) fn slot(&self) -> Option<u32> {
        if let Kind::Semaphore(_, slot) = self.kind { Some(slot) } else { None }
    }

    /// Returns how long the nodes still keep it, at this time of the wall clock, in whole milliseconds.
    pub(crate) fn left(&self, wall_micros: u64) -> Duration {
        Duration::from_millis(self.end.saturating_sub(wall_micros.max(self.acquired)) / 1000).min(TTL_MOST)
    }

    /// Adds to a caller's options what the text has, in the place of what its client gives to locks of its own, and fits
    /// what else the client gives to the ttl of the text.
    ///
    /// # Errors
    ///
    /// `invalid_argument` for an option that travels with the lock.
    pub(crate) fn options(&self, own: &Options, client: &Options) -> Result<Options, Error> {
        let travels = |name| ["max_hold", "at_least", "margin", "label"].contains(&name);
        let mut given = OPTIONS.iter().filter(|row| travels(row.name) && (row.given)(own).is_some());
        if let Some(row) = given.next() {
            return Err(Error::about(row.name, " does not go with attach: it is in the text; remove it"));
        }
        // An extension may have made it longer than an acquire allows.
        let ttl = own.ttl.unwrap_or(self.ttl.min(self.max_hold.unwrap_or(Duration::MAX)));
        let given = own.or(client);
        let fence_ttl = given.fence_ttl.map(|fence_ttl| fence_ttl.max(ttl.max(self.at_least).saturating_mul(2)));
        let node_timeout = given.node_timeout.map(|most| if most < ttl { most } else { ttl / 2 });
        Ok(Options {
            ttl: Some(ttl),
            fence_ttl: own.fence_ttl.or(fence_ttl),
            node_timeout: own.node_timeout.or(node_timeout),
            max_hold: Some(self.max_hold.unwrap_or(MAX_HOLD_MOST)),
            at_least: Some(self.at_least),
            auto_renew: own.auto_renew.or(Some(true)),
            margin: Some(self.margin),
            label: Some(Arc::clone(&self.label)),
            protocol: Some(Protocol::Plain),
            ..own.clone()
        })
    }

    /// Returns the text.
    pub(crate) fn to_text(&self) -> String {
        let mut bytes = Vec::with_capacity(128);
        let (kind, permits, slot) = match self.kind {
            Kind::One => (0, 0, 0),
            Kind::All => (1, 0, 0),
            Kind::Semaphore(permits, slot) => (2, permits, slot),
            Kind::Shared => (3, 0, 0),
        };
        let names = u64::try_from(self.names.len()).unwrap_or_default();
        // The protocol is the plain one: the other has no hold that can be handed over.
        for number in [kind, 0, u64::from(permits), u64::from(slot), names] {
            put(&mut bytes, number);
        }
        self.names.iter().for_each(|name| put_bytes(&mut bytes, name));
        put_bytes(&mut bytes, self.token.as_bytes());
        for number in [self.fence, self.level, self.acquired, self.end] {
            put(&mut bytes, number);
        }
        // One more than it is, or 0 for none.
        put(&mut bytes, self.max_hold.map_or(0, |max_hold| micros(max_hold) + 1));
        for duration in [self.ttl, self.at_least, self.margin] {
            put(&mut bytes, micros(duration));
        }
        put_bytes(&mut bytes, self.label.as_bytes());
        let sum = checksum(&bytes);
        bytes.extend(sum);
        BEGIN.to_owned() + &encode(&bytes)
    }

    /// Reads a text.
    ///
    /// # Errors
    ///
    /// What is wrong with it, without any of it.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        const DAMAGED: &str = " is neither what detach has returned nor what `redlock acquire` has printed: it was cut or \
                               changed, or is something else";
        let Some(rest) = text.strip_prefix(BEGIN) else {
            let number = text.strip_prefix("redlock").and_then(|rest| rest.split_once('.')).map(|(number, _)| number);
            let is_other = number.is_some_and(|number| number.parse::<u32>().is_ok());
            return Err(if is_other { " is of another version of redlock; update this program" } else { DAMAGED });
        };
        let bytes = decode(rest.as_bytes()).ok_or(DAMAGED)?;
        let (bytes, sum) = bytes.split_last_chunk().ok_or(DAMAGED)?;
        if *sum != checksum(bytes) {
            return Err(DAMAGED);
        }
        Self::read(&mut Reader(bytes)).ok_or(DAMAGED)
    }

    fn read(bytes: &mut Reader<'_>) -> Option<Self> {
        let [kind, protocol, permits, slot, names] = bytes.numbers()?;
        let (permits, slot) = (u32::try_from(permits).ok()?, u32::try_from(slot).ok()?);
        let kind = match kind {
            0 => Kind::One,
            1 => Kind::All,
            2 if slot < permits => Kind::Semaphore(permits, slot),
            3 => Kind::Shared,
            _ => return None,
        };
        let names = (0..names).map(|_| Some(bytes.bytes()?.to_vec())).collect::<Option<Vec<_>>>()?;
        let token = Token::parse(bytes.bytes()?)?;
        let [fence, level, acquired, end, max_hold, ttl, at_least, margin] = bytes.numbers()?;
        let label = str::from_utf8(bytes.bytes()?).ok()?.into();
        let are_right = (names.len() == 1 || kind == Kind::All && names.len() > 1) && FENCES.contains(&fence);
        let is_right = are_right && FENCES.contains(&level) && level >= fence && protocol == 0 && bytes.0.is_empty();
        let micros = Duration::from_micros;
        is_right.then(|| Self {
            kind,
            names,
            token,
            keeps_token: false,
            fence,
            level,
            acquired,
            end,
            ttl: micros(ttl),
            max_hold: max_hold.checked_sub(1).map(micros),
            at_least: micros(at_least),
            margin: micros(margin),
            label,
        })
    }
}

/// Writes a number, seven bits in each byte, the lowest first.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        bytes.push(u8::try_from(number & 127).unwrap_or_default() | 128);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap_or_default());
}

fn put_bytes(bytes: &mut Vec<u8>, some: &[u8]) {
    put(bytes, u64::try_from(some.len()).unwrap_or_default());
    bytes.extend(some);
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..63).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 127) << shift;
            if *byte < 128 {
                return Some(number);
            }
        }
        None
    }

    fn numbers<const N: usize>(&mut self) -> Option<[u64; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.number()?;
        }
        Some(numbers)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX >> 1)
}

/// Finds damage, not forgery: whoever can make a token has one. FNV-1a.
fn checksum(bytes: &[u8]) -> [u8; 4] {
    let add = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, add).to_be_bytes()
}

/// Returns base64url without padding.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let number = chunk.iter().chain([&0, &0]).take(3).fold(0, |number, byte| number << 8 | usize::from(*byte));
        let digits = [18, 12, 6, 0].map(|shift| char::from(ALPHABET[number >> shift & 63]));
        text.extend(&digits[..=chunk.len()]);
    }
    text
}

/// Reads what [`encode`] has returned, and nothing else.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.chunks(4) {
        let mut number = 0_u32;
        for digit in chunk.iter().chain([&b'A', &b'A']).take(4) {
            let value = ALPHABET.iter().position(|known| known == digit)?;
            number = number << 6 | u32::try_from(value).ok()?;
        }
        let [_, decoded @ ..] = number.to_be_bytes();
        let (decoded, rest) = decoded.split_at_checked(chunk.len().checked_sub(1).filter(|length| *length > 0)?)?;
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend(decoded);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::name::Name;
    use crate::sys::random::Random;

    fn detached(kind: Kind, names: &[&[u8]], numbers: [u64; 4], label: &str) -> Detached {
        let [fence, acquired, end, more] = numbers;
        Detached {
            kind,
            names: names.iter().map(|name| name.to_vec()).collect(),
            token: Token::fresh(&Random::System),
            keeps_token: false,
            fence,
            level: fence + more % 2,
            acquired,
            end,
            ttl: Duration::from_micros(more),
            max_hold: (more % 3 == 0).then(|| Duration::from_micros(more)),
            at_least: Duration::from_micros(more / 2),
            margin: Duration::from_micros(more / 4),
            label: label.into(),
        }
    }

    fn some() -> Detached {
        detached(Kind::Semaphore(5, 3), &[b"p:pool"], [7, 1_700_000_000_000_000, 1_700_000_010_000_000, 9], "büro:1")
    }

    impl Detached {
        /// Returns a detached lock with these names, for tests.
        pub(crate) fn of(kind: Kind, names: &[Name]) -> Self {
            detached(kind, &names.iter().map(Name::bytes).collect::<Vec<_>>(), [7, 8, 9, 10], "")
        }
    }

    #[test]
    fn a_text_is_short_and_safe_in_an_address() {
        let text = some().to_text();
        let is_safe = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
        assert!(text.chars().all(is_safe) && text.len() < 200, "{text}");
        assert_eq!(Detached::parse(&text), Ok(some_like(&text)));
        assert!(!format!("{:?}", some()).contains(str::from_utf8(some().token.as_bytes()).unwrap()));
    }

    fn some_like(text: &str) -> Detached {
        Detached { token: Detached::parse(text).unwrap().token, ..some() }
    }

    proptest! {
        #[test]
        fn a_text_is_read_as_it_was_written(
            fence in 1..1_u64 << 52,
            times in prop::array::uniform3(0..1_u64 << 60),
            name in prop::collection::vec(any::<u8>(), 1..40),
            label in "[a-z:é]{0,20}",
            kind in 0..4_usize,
        ) {
            let kind = [Kind::One, Kind::All, Kind::Semaphore(32, 31), Kind::Shared][kind];
            let names: &[&[u8]] = if kind == Kind::All { &[b"a", &name] } else { &[&name] };
            let written = detached(kind, names, [fence, times[0], times[1], times[2]], &label);
            prop_assert_eq!(Detached::parse(&written.to_text()), Ok(written));
        }
    }

    #[test]
    fn every_damage_is_found() {
        let text = some().to_text();
        for index in 0..text.len() {
            assert!(Detached::parse(&text[..index]).is_err(), "cut at {index}");
            for other in ["A", "z", "-", "=", " ", "\n"] {
                let changed = format!("{}{other}{}", &text[..index], &text[index + 1..]);
                assert!(changed == text || Detached::parse(&changed).is_err(), "{changed}");
            }
        }
        for more in ["A", "=", " ", "AA"] {
            assert!(Detached::parse(&(text.clone() + more)).is_err(), "{more:?}");
        }
        let later = text.replacen('1', "2", 1);
        assert!(Detached::parse(&later).is_err_and(|wrong| wrong.contains("another version")));
        assert!(Detached::parse("").is_err());
    }

    #[test]
    fn what_travels_is_not_given_again() {
        let given = Options { max_hold: Some(Duration::from_secs(60)), ..Options::default() };
        assert_eq!(some().options(&given, &Options::default()).unwrap_err().option(), Some("max_hold"));
        let given = Options { ttl: Some(Duration::from_secs(60)), ..Options::default() };
        let options = some().options(&given, &Options::default()).unwrap();
        assert_eq!((options.ttl, options.label.as_deref()), (given.ttl, Some("büro:1")));
        let options = some().options(&Options::default(), &Options::default()).unwrap();
        assert_eq!(options.ttl, Some(some().ttl));
    }
}
