//! What a server sends: in whatever pieces it arrives, the same replies are read, or it is malformed.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../src/node/replies.rs"]
mod replies;

use replies::{Malformed, Replies};

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let whole = read([bytes]);
    let pieces = read(bytes.chunks(usize::from(piece).max(1)));
    assert_eq!(whole.0, pieces.0);
    // Of what is too long, the pieces say so sooner.
    assert_eq!(whole.1, pieces.1);
});

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, Result<(), Malformed>) {
    let (mut replies, mut read) = (Replies::default(), Vec::new());
    for piece in pieces {
        // Not by value: a server may send what is not a number.
        if let Err(malformed) = replies.read(piece, |reply| read.push(format!("{reply:?}"))) {
            return (read, Err(malformed));
        }
    }
    (read, Ok(()))
}
