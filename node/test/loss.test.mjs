import assert from "node:assert/strict";
import { test } from "node:test";
import { LockLost, Redlock } from "redlock-rs";
import { lose } from "redlock-rs/testing";
import { failure, fresh, serve, until } from "./servers.mjs";

/** Keeps the event loop busy until a lock is not held any more. */
function outlast(lock) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, lock.remaining);
  while (lock.held);
}

const server = await serve();
const redlock = new Redlock(server.url, { ttl: 3_000 });

test("a loss aborts the signal with the error", async () => {
  const lock = await redlock.lock(fresh()).acquire();
  const { signal, fence } = lock;
  assert.equal(lock.signal, signal);
  const events = [];
  signal.addEventListener("abort", () => events.push(lock.held));
  await server.ask("SET", lock.name, "someone else");
  // A renewal finds it.
  await until(() => signal.aborted);
  assert.ok(signal.reason instanceof LockLost);
  assert.equal(signal.reason.reason, "taken");
  assert.deepEqual(events, [false], "once, and not before it is so");
  assert.equal(signal.reason.lockName, lock.name);
  assert.equal(lock.held, false);
  assert.equal(lock.remaining, 0);
  assert.equal(lock.fence, fence, "of the hold that was lost");
  assert.throws(() => lock.check(), LockLost);
  await assert.rejects(lock.extend(), LockLost);
  await assert.rejects(lock.release(), LockLost);
  await lock.release();
});

test("a signal asked for after the loss is aborted already", async () => {
  const lock = await redlock.lock(fresh(), { maxHold: 3_000 }).acquire();
  await until(() => !lock.held);
  const { signal } = lock;
  assert.equal(signal.aborted, true);
  assert.equal(signal.reason.reason, "max_hold");
  assert.match(signal.reason.message, /maxHold/);
  assert.equal(lock.signal, signal, "the same for as long as the hold is neither released nor followed by another");
  await assert.rejects(lock.release(), LockLost);
  assert.equal(lock.signal.aborted, false, "nothing is held that could be lost");
});

test("every acquisition has a signal of its own", async () => {
  const lock = redlock.lock(fresh());
  const early = lock.signal;
  await lock.acquire();
  assert.equal(lock.signal, early, "asked for before, it is the next hold's");
  await lock.release();
  assert.equal(early.aborted, false, "a release is no loss");

  const next = lock.signal;
  await lock.release();
  await lock.acquire();
  const first = lock.signal;
  assert.notEqual(first, early);
  assert.equal(first, next, "releasing again does nothing");
  lose(lock, "deleted");
  await lock.acquire();
  assert.equal(first.reason.reason, "deleted");
  assert.equal(lock.signal.aborted, false);
  assert.equal(early.aborted, false);
  await lock.release();
});

test("a loss that a test brings about has aborted the signal when it returns", async () => {
  const lock = redlock.lock(fresh());
  const work = lock.using((signal) => {
    lose(lock, "taken");
    signal.throwIfAborted();
    assert.fail("the body goes on");
  });
  await assert.rejects(work, { code: "lost", reason: "taken" });
  const silent = redlock.lock(fresh());
  await assert.rejects(
    silent.using(() => lose(silent, "taken")),
    LockLost,
    "although the body succeeds",
  );
});

test("a loss is the cause of what the body throws, unless that has one", async () => {
  const [plain, caused] = [new Error("plain"), new Error("caused", { cause: "own" })];
  for (const thrown of [plain, caused, Object.freeze(new Error("frozen")), "text"]) {
    const lock = redlock.lock(fresh());
    const work = async () => {
      lose(lock, "expired");
      throw thrown;
    };
    assert.equal(await failure(() => lock.using(work)), thrown);
  }
  assert.equal(caused.cause, "own");
  assert.ok(plain.cause instanceof LockLost);
  assert.match(plain.cause.message, /expired while it was held, .* before its release/);
});

test("a body that lost the lock ends before its object acquires again", async () => {
  const lock = redlock.lock(fresh());
  const held = lock.using(async () => {
    lose(lock, "taken");
    await assert.rejects(lock.acquire(), { code: "already_held" });
  });
  await assert.rejects(held, { code: "lost", reason: "taken" });
  await lock.using(() => assert.ok(lock.held));
});

test("a loss that the event loop had no time to tell of is told by the next call", async () => {
  const lock = redlock.lock(fresh(), { ttl: 1_500, autoRenew: false });
  for (const next of [() => lock.acquire(), () => failure(() => lock.release())]) {
    await lock.acquire();
    const { signal } = lock;
    outlast(lock);
    assert.equal(signal.aborted, false);
    const done = next();
    assert.equal(signal.aborted, true);
    await done;
    await lock.release();
  }
});

test("a wait for a loss ends with the hold", async () => {
  const lock = redlock.lock(fresh());
  assert.equal((await failure(() => lock.lost())).code, "not_held");
  await lock.acquire();
  const released = lock.lost();
  await lock.release();
  assert.equal(await released, undefined);
  await lock.acquire();
  const taken = lock.lost();
  lose(lock, "taken");
  assert.equal((await taken).reason, "taken");
  assert.equal((await lock.lost()).reason, "taken", "a loss is told until the lock is released");
  await lock.release().catch(() => undefined);
});
