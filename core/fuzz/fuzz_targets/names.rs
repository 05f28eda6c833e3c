//! Names of locks: each can be locked, or is refused with `invalid_argument`.

use std::time::Duration;

use proptest::prelude::*;
use redlock::{ErrorKind, blocking};
use redlock_fuzz::play;

fn name() -> impl Strategy<Value = Vec<u8>> {
    let prefix = prop_oneof![Just(""), Just("redlock:"), Just("redlock:fence:"), Just("redlock:waiters:"), Just("{")];
    let rest = prop_oneof![prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..3_000)];
    (prefix, rest).prop_map(|(prefix, rest)| [prefix.as_bytes(), &rest].concat())
}

#[test]
fn names() {
    let client = blocking::Redlock::new("memory://fuzz").expect("an address");
    play("names", &name(), |name| match client.lock(&name).timeout(Duration::ZERO).acquire() {
        Ok(guard) => guard.release().map_err(|error| TestCaseError::fail(error.to_string())),
        Err(error) => {
            prop_assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{}", error);
            Ok(())
        }
    });
}
