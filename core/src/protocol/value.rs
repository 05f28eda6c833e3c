//! PURE: what this library has under the key of a lock.

use crate::protocol::request::{self, FENCES, Proof};
use crate::protocol::token::{Fingerprint, Token};

/// A value in this library's form: `<token>:<fence>[:<label>]`.
pub(crate) struct Value<'a> {
    pub(crate) token: &'a [u8],
    pub(crate) fence: u64,
    pub(crate) label: Option<Box<str>>,
}

impl<'a> Value<'a> {
    /// Returns the parts of a value; `None` if it is not in this form.
    pub(crate) fn parse(text: &'a [u8]) -> Option<Self> {
        let (token, rest) = text.split_at_checked(Token::LEN)?;
        let is_hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        let rest = rest.strip_prefix(b":").filter(|_| token.iter().all(is_hex))?;
        let digits = leading_digits(rest);
        let fence = number(digits).filter(|fence| FENCES.contains(fence))?;
        let label = match &rest[digits.len()..] {
            [] => None,
            [b':', label @ ..] => request::label(label),
            _ => return None,
        };
        Some(Self { token, fence, label })
    }

    pub(crate) fn owner(&self) -> Fingerprint {
        Fingerprint::parse(&self.token[..Fingerprint::LEN]).expect("a token is hex digits")
    }

    pub(crate) fn is_of(&self, token: &Token) -> bool {
        self.token == token.as_bytes()
    }
}

impl Proof {
    pub(crate) fn of(value: &[u8]) -> Self {
        let ours = Value::parse(value).and_then(|ours| Token::parse(ours.token));
        ours.map_or_else(|| Self::Value(value.into()), Self::Token)
    }
}

pub(crate) fn leading_digits(text: &[u8]) -> &[u8] {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    &text[..digits]
}

/// Parses digits, `None` without any. A number too large for `u64` is beyond every limit too.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.is_empty())?;
    Some(digits.parse().unwrap_or(u64::MAX))
}
