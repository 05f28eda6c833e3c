//! Compiles only if every public type can be shared between threads and every call can be spawned.

use redlock::{
    Builder, Error, ErrorKind, Guard, Lock, LockState, LockView, LostReason, NodeAnswer, NodeState, NodeView, Redlock,
    blocking,
};

fn shared<T: Send + Sync>() {}

fn sendable<T: Send>(future: T) -> T {
    future
}

fn outliving<T: Send + 'static>(future: T) -> T {
    future
}

#[test]
fn types_are_send_and_sync() {
    // A tuple is if all its parts are.
    shared::<(Redlock, Builder, Lock, Guard, Error, ErrorKind, LostReason, NodeAnswer)>();
    shared::<(LockState, LockView, NodeState, NodeView, blocking::Redlock, blocking::Lock, blocking::Guard)>();
}

#[tokio::test]
async fn futures_are_send() {
    let redlock = Redlock::new("memory://send-sync").unwrap();
    let lock = redlock.lock("foo");
    // A call does not borrow the lock either, which may be made in the same expression.
    let (acquiring, trying) = (outliving(redlock.lock("foo").acquire()), outliving(redlock.lock("foo").try_acquire()));
    let guard = acquiring.await.unwrap();
    assert!(trying.await.unwrap().is_none());
    sendable(guard.extend()).await.unwrap();
    sendable(guard.extend_for(std::time::Duration::from_secs(5))).await.unwrap();
    assert_eq!(sendable(redlock.inspect("foo")).await.unwrap().nodes.len(), 1);
    drop(outliving(guard.lost()));
    outliving(guard.release()).await.unwrap();
    outliving(IntoFuture::into_future(lock.clone())).await.unwrap().release().await.unwrap();
    let setnx = redlock.setnx_lock("bar");
    drop((outliving(setnx.clone().acquire()), outliving(setnx.try_acquire())));
    sendable(lock.run(async |guard| guard.fence())).await.unwrap();
}
