//! How many requests a free lock takes: every shape takes as few as one name does.

use harness::Server;
use redlock::Redlock;

#[tokio::test]
async fn a_free_lock_of_any_shape_takes_one_request_to_acquire_and_one_to_release() {
    let server = Server::start();
    // A server that compares and deletes by itself needs no script to release.
    let asked = || server.asked(&["eval", "evalsha", "delifeq", "delex"]);
    let client = Redlock::new(server.url()).unwrap();
    for lock in [client.lock("foo").into(), client.lock_all(["foo", "bar", "baz", "qux"]), client.semaphore("pool", 1)]
    {
        // The first time, the server does not know the scripts.
        lock.acquire().await.unwrap().release().await.unwrap();
        let before = asked();
        let guard = lock.acquire().await.unwrap();
        assert_eq!(asked() - before, 1, "{lock:?}");
        guard.release().await.unwrap();
        assert_eq!(asked() - before, 2, "{lock:?}");
    }
}
