//! Replies, read from bytes in whatever pieces they arrive. Pure.

use std::io::{self, ErrorKind, Read};

use redis::{Parser, Value};

/// The most bytes of one reply. INFO has about 10 KB, and CLUSTER NODES 200 bytes for each server of the cluster.
const LONGEST: usize = 1 << 20;

/// The replies on one connection.
#[derive(Default)]
pub(super) struct Replies {
    /// Keeps what it has read of a reply that is not complete.
    parser: Parser,
    /// The number of bytes since the last complete reply, at least.
    incomplete: usize,
}

/// The error of bytes that are not a reply, or of a reply that is too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Replies {
    /// Reads the bytes that arrived next, and calls `replied` with each reply that is complete by then.
    pub(super) fn read(&mut self, bytes: &[u8], mut replied: impl FnMut(Value)) -> Result<(), Malformed> {
        let mut arrived = Arrived { bytes, is_over: false };
        self.incomplete += bytes.len();
        loop {
            match self.parser.parse_value(&mut arrived) {
                Ok(reply) => {
                    self.incomplete = arrived.bytes.len();
                    replied(reply);
                }
                Err(_) if arrived.is_over && self.incomplete <= LONGEST => return Ok(()),
                Err(_) => return Err(Malformed),
            }
        }
    }
}

/// Bytes after which others will come.
struct Arrived<'a> {
    bytes: &'a [u8],
    /// Whether the parser has asked for more of them.
    is_over: bool,
}

impl Read for Arrived<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            self.is_over = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        self.bytes.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis::PushKind;

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
        foo\r\n$-1\r\n%1\r\n$4\r\nrole\r\n+master\r\n-NOSCRIPT No matching script.\r\n$12\r\nhello\r\nworld\r\n:7\r\n";

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
        assert_eq!(read(["*1\r\n".repeat(2_000).as_bytes()]).1, Err(Malformed));
    }

    #[test]
    fn a_reply_without_an_end_is_refused() {
        let much = vec![b'x'; 65_536];
        let pieces = || std::iter::once(&b"$99999999\r\n"[..]).chain(std::iter::repeat(&much[..]));
        assert_eq!(read(pieces().take(16)), (vec![], Ok(())), "it may still end");
        assert_eq!(read(pieces().take(17)), (vec![], Err(Malformed)));
        let small = vec![&b"$3\r\nabc\r\n"[..]; 300_000];
        assert_eq!(read(small).0.len(), 300_000, "only what is incomplete counts");
    }
}
