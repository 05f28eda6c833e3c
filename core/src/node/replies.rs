//! Replies, read from bytes in whatever pieces they arrive. Pure.

use std::mem;

use redis::{Value, parse_redis_value};

/// The most bytes of one reply. INFO has about 10 KB, CLUSTER NODES 200 bytes for each server of the cluster, and CLUSTER
/// SLOTS 200 for each server of each range of slots, of which there may be thousands.
const LONGEST: usize = 1 << 24;

/// The replies on one connection.
#[derive(Default)]
pub(super) struct Replies {
    /// What has arrived of a reply that is not complete.
    begun: Vec<u8>,
    /// How far its end was looked for.
    sought: Sought,
}

/// How far the end of a reply was looked for.
struct Sought {
    /// Where the next part begins.
    at: usize,
    /// How many parts are missing.
    missing: usize,
}

impl Default for Sought {
    fn default() -> Self {
        Self { at: 0, missing: 1 }
    }
}

/// The error of bytes that are not a reply, or of a reply that is too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Replies {
    /// Reads the bytes that arrived next, and calls `replied` with each reply that is complete by then.
    pub(super) fn read(&mut self, bytes: &[u8], mut replied: impl FnMut(Value)) -> Result<(), Malformed> {
        let (mut begun, mut sought) = (mem::take(&mut self.begun), mem::take(&mut self.sought));
        let mut rest = bytes;
        if !begun.is_empty() {
            begun.extend_from_slice(bytes);
            rest = &begun;
        }
        while let Some(end) = sought.end(rest)? {
            let (reply, next) = rest.split_at(end);
            replied(short(reply).map_or_else(|| parse_redis_value(reply), Ok).map_err(|_| Malformed)?);
            (rest, sought) = (next, Sought::default());
        }
        if rest.len() > LONGEST {
            return Err(Malformed);
        }
        // A long one is not copied with each piece.
        self.begun = if rest.len() == begun.len() { begun } else { rest.to_vec() };
        self.sought = sought;
        Ok(())
    }
}

impl Sought {
    /// Returns where the reply at the front ends; `None` if its end has not arrived. Goes on where it was before.
    fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        while self.missing > 0 {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some(kind) = rest.first() else { return Ok(None) };
            let has_number = b"$!=*~>%|".contains(kind);
            if !has_number && !b"+-:_#,(".contains(kind) {
                return Err(Malformed);
            }
            let Some(line) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
            self.at += line + 2;
            self.missing -= 1;
            if !has_number {
                continue;
            }
            let number = str::from_utf8(&rest[1..line]).ok().and_then(|digits| digits.parse::<i64>().ok());
            // Below zero it is nil.
            let Ok(number) = usize::try_from(number.ok_or(Malformed)?) else { continue };
            match kind {
                b'$' | b'!' | b'=' => self.at = self.at.saturating_add(number).saturating_add(2),
                b'%' => self.missing = self.missing.saturating_add(number.saturating_mul(2)),
                b'|' => self.missing = self.missing.saturating_add(number.saturating_mul(2)).saturating_add(1),
                _ => self.missing = self.missing.saturating_add(number),
            }
        }
        Ok(Some(self.at).filter(|end| *end <= bytes.len()))
    }
}

/// Reads a number or nil, which nearly every script replies: the crate's parser clears 8 KB for each reply.
fn short(reply: &[u8]) -> Option<Value> {
    match reply {
        b"$-1\r\n" | b"_\r\n" => Some(Value::Nil),
        [b':', digits @ .., b'\r', b'\n'] => str::from_utf8(digits).ok()?.parse().ok().map(Value::Int),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis::{PushKind, VerbatimFormat};

    use super::*;

    /// Returns the replies in `pieces`, and whether the last one is followed by something else.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Value>, Result<(), Malformed>) {
        let (mut replies, mut read) = (Replies::default(), Vec::new());
        for piece in pieces {
            if let Err(malformed) = replies.read(piece, |reply| read.push(reply)) {
                return (read, Err(malformed));
            }
        }
        (read, Ok(()))
    }

    const STREAM: &[u8] =
        b":0\r\n+OK\r\n*5\r\n$0\r\n\r\n:-1\r\n$3\r\na\r\n\r\n*0\r\n_\r\n>2\r\n+invalidate\r\n*1\r\n$3\r\n\
        foo\r\n$-1\r\n%1\r\n$4\r\nrole\r\n+master\r\n-NOSCRIPT No matching script.\r\n$12\r\nhello\r\nworld\r\n\
        ~1\r\n#t\r\n=7\r\ntxt:abc\r\n,1.5\r\n|1\r\n+a\r\n:1\r\n:5\r\n:7\r\n";

    fn expected() -> Vec<Value> {
        let text = |text: &[u8]| Value::BulkString(text.to_vec());
        let (whole, _) = read([&b"-NOSCRIPT No matching script.\r\n"[..]]);
        vec![
            Value::Int(0),
            Value::Okay,
            Value::Array(vec![text(b""), Value::Int(-1), text(b"a\r\n"), Value::Array(vec![]), Value::Nil]),
            Value::Push { kind: PushKind::Invalidate, data: vec![Value::Array(vec![text(b"foo")])] },
            Value::Nil,
            Value::Map(vec![(text(b"role"), Value::SimpleString("master".into()))]),
            whole[0].clone(),
            text(b"hello\r\nworld"),
            Value::Set(vec![Value::Boolean(true)]),
            Value::VerbatimString { format: VerbatimFormat::Text, text: "abc".into() },
            Value::Double(1.5),
            Value::Attribute {
                data: Box::new(Value::Int(5)),
                attributes: vec![(Value::SimpleString("a".into()), Value::Int(1))],
            },
            Value::Int(7),
        ]
    }

    #[test]
    fn replies_may_be_cut_anywhere() {
        for cut in 0..=STREAM.len() {
            let (first, second) = STREAM.split_at(cut);
            assert_eq!(read([first, second]), (expected(), Ok(())), "cut at {cut}");
        }
        assert_eq!(read(STREAM.chunks(1)), (expected(), Ok(())));
    }

    proptest! {
        #[test]
        fn replies_may_come_in_any_pieces(sizes in prop::collection::vec(1..9_usize, STREAM.len())) {
            let mut rest = STREAM;
            let mut pieces = Vec::new();
            for size in sizes {
                let (piece, later) = rest.split_at(size.min(rest.len()));
                pieces.push(piece);
                rest = later;
            }
            prop_assert_eq!(read(pieces), (expected(), Ok(())));
        }
    }

    #[test]
    fn what_is_not_a_reply_is_refused() {
        for wrong in ["hello\r\n", ":\r\n", ":one\r\n", "$x\r\n", "*1\r\nx\r\n", "?\r\n", ">1\r\n:1\r\n", "#x\r\n"] {
            assert_eq!(read([b":1\r\n", wrong.as_bytes()]), (vec![Value::Int(1)], Err(Malformed)), "{wrong:?}");
        }
        assert_eq!(read(["*1\r\n".repeat(2_000).as_bytes(), b":1\r\n"]).1, Err(Malformed));
        assert_eq!(read([&b"\x15"[..]]).1, Err(Malformed), "an alert of TLS has no end");
    }

    #[test]
    fn a_reply_without_an_end_is_refused() {
        let much = vec![b'x'; LONGEST / 16];
        let pieces = || std::iter::once(&b"$99999999\r\n"[..]).chain(std::iter::repeat(&much[..]));
        assert_eq!(read(pieces().take(16)), (vec![], Ok(())), "it may still end");
        assert_eq!(read(pieces().take(17)), (vec![], Err(Malformed)));
        let small = vec![&b"$3\r\nabc\r\n"[..]; 300_000];
        assert_eq!(read(small).0.len(), 300_000, "only what is incomplete counts");
    }

    /// A cluster whose slots were moved again and again has so many.
    #[test]
    fn a_map_of_thousands_of_ranges_is_read() {
        let name = "a".repeat(40);
        let server =
            format!("*4\r\n$9\r\n127.0.0.1\r\n:7000\r\n$40\r\n{name}\r\n*2\r\n$8\r\nhostname\r\n$40\r\n{name}\r\n");
        let range = format!("*5\r\n:0\r\n:0\r\n{}", server.repeat(3));
        let map = format!("*4000\r\n{}", range.repeat(4_000));
        let (replies, read) = read(map.as_bytes().chunks(4_096));
        assert_eq!((replies.len(), read), (1, Ok(())));
    }

    /// Else one node that sends nonsense would keep the background from all others.
    #[test]
    fn a_reply_of_many_parts_is_not_read_from_its_beginning_again() {
        let (mut replies, piece) = (Replies::default(), b"*1\r\n".repeat(16));
        for pieces in 1..=1_000 {
            assert_eq!(replies.read(&piece, |_| {}), Ok(()));
            assert_eq!((replies.sought.at, replies.sought.missing), (pieces * piece.len(), 1));
        }
    }
}
