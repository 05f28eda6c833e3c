//! What a lock needs of its program and of its server.

use harness::Server;
use harness::redis::FromRedisValue;
use redlock::{ErrorKind, Redlock};
use tokio::runtime::Builder;

/// Without these, tokio would panic.
#[test]
fn a_runtime_without_timers_or_io_is_refused() {
    let server = Server::start();
    let (mut none, mut timers) = (Builder::new_current_thread(), Builder::new_current_thread());
    for (runtime, url) in [(&mut none, "memory://no-timers"), (timers.enable_time(), &server.url())] {
        let runtime = runtime.build().unwrap();
        let redlock = Redlock::new(url).unwrap();
        let guard = redlock::blocking::Redlock::new(url).unwrap().lock("other").acquire().unwrap();
        runtime.block_on(async {
            let refused = [
                redlock.lock("foo").acquire().await.map(drop),
                redlock.lock("foo").is_locked().await.map(drop),
                redlock.inspect("foo").await.map(drop),
                redlock.diagnose().await.map(drop),
                redlock.list_locks("*").next().await.map(drop),
            ];
            for error in refused.map(Result::unwrap_err) {
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                assert!(error.to_string().contains("enable_all()"), "{error}");
            }
        });
        guard.release().unwrap();
    }
}

#[tokio::test]
async fn a_fence_key_takes_the_memory_that_the_page_states() {
    let server = Server::start();
    let redlock = Redlock::new(server.url()).unwrap();
    let used = || {
        let info = String::from_redis_value(server.command(&["INFO", "memory"])).unwrap();
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        used.trim().parse::<usize>().unwrap()
    };
    // The first ones make tables and buffers grow.
    let names = |from: usize| (from..from + 2_000).map(|index| format!("order:{index:08}"));
    let mut before = 0;
    for from in [0, 2_000] {
        before = used();
        for name in names(from) {
            redlock.lock(name).await.unwrap().release().await.unwrap();
        }
    }
    let each = (used() - before) / 2_000;
    assert!((60..=200).contains(&each), "{each} bytes");
}
