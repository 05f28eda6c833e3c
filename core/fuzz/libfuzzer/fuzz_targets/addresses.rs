//! Lists of addresses: each is accepted, or refused with `invalid_argument`, and no password is shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use redlock::{ErrorKind, Redlock};

const SECRET: &str = "S3CR3T";

fuzz_target!(|text: &str| {
    let nodes: Vec<_> = text.split('\n').map(|node| node.replacen(":@", &format!(":{SECRET}@"), 1)).collect();
    // Elsewhere, what looks like a login is a part of a path.
    let has_login = nodes.iter().all(|node| node.starts_with("redis://") && node.contains(&format!("{SECRET}@")));
    let shown = match Redlock::builder().nodes(nodes).build() {
        Ok(client) => format!("{client:?}"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            format!("{error} {error:?}")
        }
    };
    assert!(!has_login || !shown.contains(SECRET), "{shown}");
});
