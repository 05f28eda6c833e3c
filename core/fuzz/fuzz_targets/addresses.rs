//! Addresses of nodes: each is accepted, or refused with `invalid_argument`.

use proptest::prelude::*;
use proptest::sample::select;
use redlock::{ErrorKind, Redlock};
use redlock_fuzz::{SECRET, hides_secret, play};

const SCHEMES: [&str; 10] =
    ["redis", "rediss", "valkey", "redis+sentinel", "REDIS", "redis+unix", "unix", "memory", "http", ""];
const PARTS: [&str; 24] = [
    "127.0.0.1",
    "[::1]",
    "[fe80::1%25lo]",
    "host",
    "a.b.c",
    "xn--",
    ":6379",
    ":0",
    ":65536",
    ":-1",
    "/0",
    "/15",
    "/x",
    "?",
    "db=1",
    "&",
    "password=",
    "#",
    "%00",
    "%zz",
    "@",
    "//",
    "\u{0}",
    "\u{fe0f}",
];

fn address() -> impl Strategy<Value = String> {
    let parts =
        prop::collection::vec(prop_oneof![4 => select(&PARTS[..]).prop_map(str::to_owned), 1 => ".{0,6}"], 0..6);
    let user = prop_oneof![Just(String::new()), ".{0,4}"];
    let login = prop_oneof![Just(String::new()), user.prop_map(|user| format!("{user}:{SECRET}@"))];
    // Elsewhere, what looks like a login is a part of a path.
    let of_servers = (select(&SCHEMES[..5]), login, parts.clone())
        .prop_map(|(scheme, login, parts)| format!("{scheme}://{login}{}", parts.concat()));
    let others = (select(&SCHEMES[..]), prop_oneof!["://", ":", "", "//"], parts)
        .prop_map(|(scheme, separator, parts)| format!("{scheme}{separator}{}", parts.concat()));
    prop_oneof![1 => any::<String>(), 6 => of_servers, 3 => others]
}

#[test]
fn addresses() {
    play("addresses", &prop::collection::vec(address(), 0..4), |nodes| match Redlock::builder().nodes(nodes).build() {
        Ok(client) => hides_secret(&format!("{client:?}")),
        Err(error) => {
            prop_assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            hides_secret(&format!("{error} {error:?}"))
        }
    });
}
