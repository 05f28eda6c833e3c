//! The token: 128 random bits that identify a key's owner, and its text on the wire.
//!
//! A token is drawn for every attempt and never used again, so that a late message of an earlier attempt cannot act for
//! a later one. It appears in no log, no `Debug` and no inspection, because it can release the lock. Inspections
//! compare [`Fingerprint`]s instead.

use std::io::Write;

use crate::sys::random::{self, Random};
use crate::texts::opaque;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// 32 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token([u8; 32]);

impl Token {
    /// The length of a token's text.
    pub(crate) const LEN: usize = 32;

    /// Draws a new token.
    pub(crate) fn fresh(random: &Random) -> Self {
        Self::fresh_with_unit(random).0
    }

    /// Draws a new token, and from the same draw a number in [0, 1) that reveals nothing about it.
    pub(crate) fn fresh_with_unit(random: &Random) -> (Self, f64) {
        let mut bits = [0; 20];
        random.fill(&mut bits);
        let (bits, [a, b, c, d]) = bits.split_last_chunk().expect("20 is 16 and 4");
        let mut text = [0; Self::LEN];
        for (pair, byte) in text.chunks_exact_mut(2).zip(bits) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        (Self(text), random::unit(u32::from_le_bytes([*a, *b, *c, *d])))
    }

    /// Reads the text of a token.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        digits(text).map(Self)
    }

    /// Returns the text in the lock's value.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the owner's value under the lock key of a node that granted `fence`.
    pub(crate) fn value(&self, fence: u64, label: &str) -> Vec<u8> {
        let mut value = Vec::with_capacity(Self::LEN + 18 + label.len());
        self.write_value(fence, label, &mut value);
        value
    }

    /// Writes that value to a place in memory.
    pub(crate) fn write_value(&self, fence: u64, label: &str, mut to: impl Write) {
        let rest = if label.is_empty() { "" } else { ":" };
        to.write_all(&self.0).and_then(|()| write!(to, ":{fence}{rest}{label}")).expect("memory takes all of it");
    }
}

opaque!(Token);

/// The first half of a token. It tells owners apart, and can do nothing to their keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; Token::LEN / 2]);

impl Fingerprint {
    /// The length of its text.
    pub(crate) const LEN: usize = Token::LEN / 2;

    /// Reads what a node reports; `None` if that is not half of a token.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        digits(text).map(Self)
    }
}

opaque!(Fingerprint);

/// Reads a text of so many digits.
fn digits<const COUNT: usize>(text: &[u8]) -> Option<[u8; COUNT]> {
    text.try_into().ok().filter(|digits: &[u8; COUNT]| digits.iter().all(|digit| DIGITS.contains(digit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_hex_and_differ() {
        let first = Token::fresh(&Random::System);
        let second = Token::fresh(&Random::System);
        assert!(first != second);
        assert!(first.as_bytes().iter().all(|digit| DIGITS.contains(digit)));
    }

    /// Chance alone would leave one out less than once in 10^25 runs.
    #[test]
    fn every_digit_comes_at_every_place() {
        let mut seen = [[false; 16]; Token::LEN];
        for _ in 0..1_000 {
            for (seen, digit) in seen.iter_mut().zip(Token::fresh(&Random::System).as_bytes()) {
                seen[DIGITS.iter().position(|known| known == digit).unwrap()] = true;
            }
        }
        assert!(seen.iter().flatten().all(|seen| *seen), "{seen:?}");
    }

    #[test]
    fn a_value_carries_fence_and_label_and_debug_hides_the_token() {
        let token = Token::fresh(&Random::System);
        let text = std::str::from_utf8(token.as_bytes()).expect("hex");
        assert_eq!(token.value(7, ""), format!("{text}:7").into_bytes());
        assert_eq!(token.value(7, "a:b"), format!("{text}:7:a:b").into_bytes());
        assert_eq!(format!("{token:?}"), "Token { .. }");
    }

    #[test]
    fn a_fingerprint_is_half_of_a_token_and_hidden() {
        let token = Token::fresh(&Random::System);
        let (half, rest) = token.as_bytes().split_at(Fingerprint::LEN);
        let fingerprint = Fingerprint::parse(half).expect("half of a token");
        assert_eq!(format!("{fingerprint:?}"), "Fingerprint { .. }");
        assert!(Fingerprint::parse(rest).is_some_and(|other| other != fingerprint), "the halves differ");
        for wrong in [token.as_bytes(), &half[1..], b"", b"0123456789ABCDEF", b"0123456789abcde:"] {
            assert_eq!(Fingerprint::parse(wrong), None, "{:?}", wrong.escape_ascii().to_string());
        }
    }
}
