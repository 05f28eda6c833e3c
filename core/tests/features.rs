//! What a build has without some of the features. `make features` runs it with none of them, and with each alone.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use redlock::{AnswerKind, ErrorKind, Redlock};

#[test]
fn an_address_names_the_feature_that_it_needs() {
    for (url, feature, is_there) in [
        ("rediss://a", "tls", cfg!(any(feature = "tls", feature = "tls-aws-lc"))),
        ("redis+cluster://a", "cluster", cfg!(feature = "cluster")),
        ("redis+sentinel://a/master", "sentinel", cfg!(feature = "sentinel")),
        ("memory://a", "memory", cfg!(feature = "memory")),
    ] {
        match Redlock::new(url) {
            Ok(_) => assert!(is_there, "{url}"),
            Err(error) => {
                assert!(!is_there && error.kind() == ErrorKind::InvalidArgument, "{url}: {error}");
                assert!(error.to_string().contains(&format!("`{feature}`")), "{error}");
            }
        }
    }
}

/// With the features that are left, the engine works: nobody listens there.
#[tokio::test]
async fn what_every_build_has_works() {
    let redlock = Redlock::new("redis://127.0.0.1:1").unwrap();
    let error = redlock.lock("foo").try_acquire().await.unwrap_err();
    assert_eq!((error.kind(), &error.nodes()[0].kind), (ErrorKind::Unavailable, &AnswerKind::Unreachable), "{error}");
}

/// Whichever library does the cryptography.
#[cfg(any(feature = "tls", feature = "tls-aws-lc"))]
#[tokio::test]
async fn tls_encrypts() {
    let Some(program) = harness::Program::with_tls() else { return };
    let server = harness::Server::builder().program(program).tls(true).start();
    let redlock = Redlock::builder().nodes(server.url()).tls_ca(server.authority().ca()).build().unwrap();
    redlock.lock("foo").await.unwrap().release().await.unwrap();
}
