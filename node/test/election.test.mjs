// Elections: of many candidates, at most one leads.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { Lock, LockForbidden, LockInvalidArgument, LockUnavailable, Redlock } from "redlock-rs";
import { lose } from "redlock-rs/testing";
import { failure, fresh, serve, until } from "./servers.mjs";

const server = await serve();
const redlock = new Redlock(server.url, { ttl: 10_000 });

const exists = async (name) => (await server.ask("EXISTS", name)) === 1;

/** The body of a candidate that must not lead. */
const never = () => assert.fail("it led");

/** The error with which `action` is refused. */
async function refused(action, option, ...mentions) {
  const error = await failure(action);
  assert.ok(error instanceof LockInvalidArgument, `${error?.stack}`);
  assert.equal(error.option, option);
  for (const text of mentions) assert.ok(error.message.includes(text), `${error.message} lacks ${text}`);
}

test("the loss that a body throws is the end of its term, and other errors are not", async () => {
  const ends = [
    (signal) => signal.throwIfAborted(),
    (_, lock) => lock.release(),
    (signal) => setImmediate(undefined, { signal }),
    (signal) => Promise.reject(new Error("stopped", { cause: signal.reason })),
  ];
  for (const end of ends) {
    let terms = 0;
    const result = await redlock.election(fresh()).run(async (signal, lock) => {
      terms += 1;
      if (terms > 1) return "next";
      lose(lock, "deleted");
      return await end(signal, lock);
    });
    assert.deepEqual([result, terms], ["next", 2], `${end}`);
  }
  const other = await redlock.lock(fresh()).acquire();
  lose(other, "taken");
  for (const end of [() => Promise.reject(new TypeError("mine")), () => other.release()]) {
    const led = redlock.election(fresh()).run(async (_, lock) => {
      lose(lock, "deleted");
      await end();
    });
    const error = await failure(() => led);
    assert.ok(error.message === "mine" || error.lockName === other.name, `${error}`);
  }
});

test("a campaign ends with a failure that is not a silent quorum", async (t) => {
  const acquire = t.mock.method(Lock.prototype, "acquire");
  for (const error of [new LockUnavailable("no thread"), new LockForbidden("no right")]) {
    acquire.mock.mockImplementation(() => Promise.reject(error));
    assert.equal(await failure(() => redlock.election(fresh()).run(never)), error);
  }
});

test("an AbortError is an error while the term lasts", async () => {
  const error = await failure(() => redlock.election(fresh()).run(() => AbortSignal.abort().throwIfAborted()));
  assert.equal(error.name, "AbortError");
});

test("a leader that the release finds replaced has led", async () => {
  const name = fresh();
  let terms = 0;
  const result = await redlock.election(name).run(async () => {
    terms += 1;
    await server.ask("SET", name, "someone else");
    return "led";
  });
  assert.deepEqual([result, terms], ["led", 1]);
});

test("a stop aborts the signal of a term, which ends when the body has settled", async () => {
  const name = fresh();
  const candidate = redlock.election(name);
  let settled = false;
  let seen;
  const led = candidate.run(async (signal) => {
    seen = signal;
    await once(signal, "abort");
    assert.equal(await exists(name), true, "it still leads");
    settled = true;
    return "ignored";
  });
  await until(() => seen !== undefined);
  candidate.stop();
  assert.equal(seen.reason.name, "AbortError");
  assert.equal(await led, undefined);
  assert.equal(settled, true);
  assert.equal(await exists(name), false);
});

test("what a stopped body throws because of the signal is not an error", async () => {
  for (const end of [
    (signal) => signal.throwIfAborted(),
    (signal) => setImmediate(undefined, { signal }),
    (signal) => fetch("http://127.0.0.1:1", { signal }),
  ]) {
    const candidate = redlock.election(fresh());
    const led = candidate.run(async (signal) => {
      candidate.stop();
      await end(signal);
      return "not reached";
    });
    assert.equal(await led, undefined, `${end}`);
  }
});

test("a stop after the body has returned is too late for its result", async () => {
  const candidate = redlock.election(fresh());
  const led = candidate.run(() => {
    void setImmediate().then(() => candidate.stop());
    return 17;
  });
  assert.equal(await led, 17);
});

test("a body may release its lock, and has led", async () => {
  const name = fresh();
  const result = await redlock.election(name).run(async (signal, lock) => {
    await lock.release();
    assert.equal(await exists(name), false);
    assert.equal(signal.aborted, false);
    return "led";
  });
  assert.equal(result, "led");
});

test("wrong arguments are refused", async () => {
  for (const name of [["a"], "", "redlock:waiters:a"]) await refused(() => redlock.election(name), "name");
  for (const [options, option, message] of [
    [{ timeout: 0 }, "timeout", "timeout is not an option of an election"],
    [{ autoRenew: true }, "autoRenew", "is not an option"],
    [{ tll: 1 }, "tll", 'unknown option "tll"'],
    [{ ttl: 1 }, "ttl", "ttl is 1 ms"],
    [5_000, undefined, "not a number"],
  ]) {
    await refused(() => redlock.election("foo", options), option, message);
  }
  const candidate = redlock.election("foo", { timeout: undefined, ttl: null });
  await refused(() => candidate.run({ ttl: 500 }), undefined, "run(body) takes a function");
  const generator = function* () {
    yield 1;
  };
  await refused(() => candidate.run(generator), "body", "body is a generator");
});
