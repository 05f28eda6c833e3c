import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { setImmediate, setTimeout } from "node:timers/promises";
import { runInNewContext } from "node:vm";
import { LockTimeout, Redlock } from "redlock-rs";
import { failure, fresh, serve, until } from "./servers.mjs";

const server = await serve();
// This is far longer than the tests, so a key that was left behind does not expire.
const redlock = new Redlock(server.url, { ttl: 600_000 });

const listeners = (signal) => getEventListeners(signal, "abort").length;
const calls = async () =>
  Number(/cmdstat_evalsha:calls=(\d+)/.exec(await server.ask("INFO", "commandstats"))?.[1] ?? 0);

test("a signal that is aborted already: nothing is sent", async () => {
  // This is kept, because the collection of the object would be a call.
  const held = await redlock.lock(fresh()).acquire();
  const before = await calls();
  const signal = AbortSignal.abort(new LockTimeout("of another lock"));
  const lock = redlock.lock(fresh());
  for (const attempt of [
    () => lock.acquire({ signal }),
    () => lock.tryAcquire({ signal }),
    () => lock.using(assert.fail, { signal }),
  ]) {
    assert.equal(await failure(attempt), signal.reason);
  }
  assert.equal(await calls(), before);
  assert.equal(await lock.tryAcquire(), true, "the lock is as it was");
  await lock.release();
  await held.release();
});

test("a signal that is aborted during the wait ends it with its reason, and later does not end the lock", async () => {
  const name = fresh();
  const held = await redlock.lock(name).acquire();
  const controller = new AbortController();
  const lock = redlock.lock(name);
  const waiting = failure(() => lock.acquire({ signal: controller.signal }));
  await setImmediate();
  assert.equal(listeners(controller.signal), 1);
  const reason = new Error("mine");
  controller.abort(reason);
  assert.equal(await waiting, reason);
  assert.equal(listeners(controller.signal), 0);
  await held.release();
  const late = new AbortController();
  assert.equal(await lock.tryAcquire({ signal: late.signal }), true, "nothing was left behind");
  assert.equal(listeners(late.signal), 0);
  late.abort();
  assert.deepEqual([lock.held, lock.signal.aborted], [true, false]);
  await lock.release();
});

test("a signal has one listener, however many calls wait on it", async () => {
  const held = await redlock.lock(fresh()).acquire();
  const controller = new AbortController();
  const { signal } = controller;
  const wait = (timeout) => failure(() => redlock.lock(held.name).acquire({ signal, timeout }));
  const short = wait(1_500);
  const waiting = Promise.all(Array.from({ length: 500 }, () => wait(null)));
  await setImmediate();
  assert.equal(listeners(signal), 1);
  assert.ok((await short) instanceof LockTimeout);
  assert.equal(listeners(signal), 1, "the others still wait");
  const before = await calls();
  controller.abort(new Error("mine"));
  assert.deepEqual(new Set(await waiting), new Set([signal.reason]));
  assert.equal(listeners(signal), 0);
  await held.release();
  // It begins behind those that leave.
  await redlock.lock(held.name).using(() => undefined);
  assert.ok((await calls()) - before < 50, "most have left without a word to the server");
});

test("an abort in the turn in which the lock is ready leaves no lock behind", async () => {
  const name = fresh();
  const controller = new AbortController();
  const first = await redlock.lock(fresh(), { ttl: 100, autoRenew: false }).acquire();
  first.signal.addEventListener("abort", () => controller.abort());
  await server.ask("SET", name, "someone else", "PX", 300);
  const lock = redlock.lock(name);
  const acquired = failure(() => lock.acquire({ signal: controller.signal }));
  // Both are in one batch: first the loss, then the lock.
  for (const end = performance.now() + 800; performance.now() < end; );
  assert.equal(await acquired, controller.signal.reason);
  assert.equal(lock.held, false);
  await assert.rejects(lock.release(), { code: "not_held" });
  await until(async () => (await server.ask("EXISTS", name)) === 0);
});

test("the options can be the signal alone", async () => {
  const lock = redlock.lock(fresh());
  const aborted = AbortSignal.abort(new Error("mine"));
  for (const call of [
    () => lock.acquire(aborted),
    () => lock.tryAcquire(aborted),
    () => lock.using(() => 1, aborted),
  ]) {
    assert.equal((await failure(call)).message, "mine");
  }
  assert.ok(await lock.tryAcquire(new AbortController().signal));
  const waiting = failure(() => redlock.lock(lock.name).acquire(AbortSignal.timeout(20)));
  assert.equal((await waiting).name, "TimeoutError");
  await lock.release();
});

test("a signal of another realm aborts an acquire", async () => {
  // None of its prototypes is of this realm, as with the signals of a test in Jest.
  const foreign = runInNewContext(`({
    aborted: false,
    reason: undefined,
    listeners: new Set(),
    addEventListener(type, listener) { this.listeners.add(listener); },
    removeEventListener(type, listener) { this.listeners.delete(listener); },
    throwIfAborted() { if (this.aborted) throw this.reason; },
    abort(reason) { this.aborted = true; this.reason = reason; for (const listener of this.listeners) listener(); },
  })`);
  const held = await redlock.lock(fresh()).acquire();
  const waiting = redlock.lock(held.name).acquire({ signal: foreign });
  void setTimeout(20).then(() => foreign.abort("enough"));
  await assert.rejects(waiting, (reason) => reason === "enough");
  assert.equal(foreign.listeners.size, 0);
  await held.release();
});
