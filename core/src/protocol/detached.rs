//! PURE: a detached lock as a text, for whoever attaches it.
//!
//! The text is `redlock1.`, and then with a dot between any two: the shape, the fence and the times in decimal digits,
//! the token, the label and the names in hexadecimal digits, and a checksum. It is a credential, because the token is in
//! it: no log, no error and no `Debug` shows it. It has neither addresses nor logins. Another form begins with another
//! number.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::options::{MAX_HOLD_MOST, OPTIONS, Options, Protocol, TTL_MOST};
use crate::protocol::request::FENCES;
use crate::protocol::token::Token;

const BEGIN: &str = "redlock1.";
const NUMBERS: usize = 11;

/// A detached lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Detached {
    /// The number of permits of a semaphore, and the slot.
    pub(crate) seat: Option<(u32, u32)>,
    pub(crate) is_shared: bool,
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

impl Detached {
    /// Returns the slot of a semaphore.
    pub(crate) fn slot(&self) -> Option<u32> {
        self.seat.map(|(_, slot)| slot)
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
        let (permits, slot) = self.seat.unwrap_or_default();
        let numbers: [u64; NUMBERS] = [
            self.is_shared.into(),
            permits.into(),
            slot.into(),
            self.fence,
            self.level,
            self.acquired,
            self.end,
            micros(self.ttl),
            // One more than it is, or 0 for none.
            self.max_hold.map_or(0, |max_hold| micros(max_hold) + 1),
            micros(self.at_least),
            micros(self.margin),
        ];
        let token = String::from_utf8_lossy(self.token.as_bytes()).into_owned();
        let texts = [self.label.as_bytes()].into_iter().chain(self.names.iter().map(Vec::as_slice)).map(hex);
        let parts: Vec<_> = numbers.iter().map(u64::to_string).chain([token]).chain(texts).collect();
        let parts = parts.join(".");
        format!("{BEGIN}{parts}.{}", checksum(&parts))
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
        let whole = rest.rsplit_once('.').filter(|(parts, sum)| *sum == checksum(parts));
        whole.and_then(|(parts, _)| Self::read(parts)).ok_or(DAMAGED)
    }

    fn read(parts: &str) -> Option<Self> {
        let parts: Vec<&str> = parts.split('.').collect();
        let (digits, [token, label, names @ ..]) = parts.split_first_chunk::<NUMBERS>()? else { return None };
        let mut numbers = [0; NUMBERS];
        for (number, digits) in numbers.iter_mut().zip(digits) {
            *number = digits.parse().ok()?;
        }
        let [shared, permits, slot, fence, level, acquired, end, ttl, max_hold, at_least, margin] = numbers;
        let (permits, slot) = (u32::try_from(permits).ok()?, u32::try_from(slot).ok()?);
        let (seat, is_shared) = ((slot < permits).then_some((permits, slot)), shared == 1);
        let names = names.iter().map(|name| bytes(name)).collect::<Option<Vec<_>>>()?;
        let are_right = names.len() == 1 || names.len() > 1 && seat.is_none() && !is_shared;
        let is_right = are_right && FENCES.contains(&fence) && FENCES.contains(&level) && level >= fence;
        let micros = Duration::from_micros;
        is_right.then_some(Self {
            seat,
            is_shared,
            names,
            token: Token::parse(token.as_bytes())?,
            keeps_token: false,
            fence,
            level,
            acquired,
            end,
            ttl: micros(ttl),
            max_hold: max_hold.checked_sub(1).map(micros),
            at_least: micros(at_least),
            margin: micros(margin),
            label: str::from_utf8(&bytes(label)?).ok()?.into(),
        })
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX >> 1)
}

/// Finds damage, not forgery: whoever can make a token has one. FNV-1a.
fn checksum(text: &str) -> String {
    let add = |sum: u32, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{:08x}", text.bytes().fold(0x811c_9dc5, add))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes everything");
        text
    })
}

/// Reads what [`hex`] has returned.
fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    };
    hex.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::name::Name;
    use crate::sys::random::Random;

    type Kind = (Option<(u32, u32)>, bool);

    fn detached((seat, is_shared): Kind, names: &[&[u8]], numbers: [u64; 4], label: &str) -> Detached {
        let [fence, acquired, end, more] = numbers;
        Detached {
            seat,
            is_shared,
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
        detached((Some((5, 3)), false), &[b"p:pool"], [7, 1_700_000_000_000_000, 1_700_000_010_000_000, 9], "büro:1")
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
            let names: &[&[u8]] = if kind == 0 { &[b"a", &name] } else { &[&name] };
            let kind = ((kind == 2).then_some((32, 31)), kind == 3);
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
