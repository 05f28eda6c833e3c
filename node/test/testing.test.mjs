// What the package offers to the tests of programs: `redlock-rs/testing`.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import {
  configure,
  LockInvalidArgument,
  LockLost,
  LockNotHeld,
  LockUnavailable,
  lock,
  locked,
  Redlock,
} from "redlock-rs";
import { lose, MemoryServer } from "redlock-rs/testing";

test("a program's test", async (t) => {
  const server = new MemoryServer();
  configure(server.url);
  t.after(() => configure());
  const nightly = locked("cron:nightly", { skipIfHeld: true }, async () => "done");
  server.hold("cron:nightly");
  assert.equal(await nightly(), undefined);
  server.release("cron:nightly");
  assert.equal(await nightly(), "done");
  server.available = false;
  assert.equal(server.available, false);
  await assert.rejects(nightly(), LockUnavailable);
  server.available = true;
  assert.equal(await nightly(), "done");
});

test("a loss at will cuts off a body", async () => {
  const redlock = new Redlock(new MemoryServer().url);
  const one = redlock.lock("job");
  const body = one.using(async (signal) => {
    assert.equal(signal.aborted, false);
    lose(one, "taken");
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    signal.throwIfAborted();
  });
  await assert.rejects(body, (error) => error instanceof LockLost && error.reason === "taken");
});

test("a program's test of several names, a semaphore and an election", async () => {
  const server = new MemoryServer();
  const redlock = new Redlock(server.url);
  server.hold("b");
  assert.equal(await redlock.lockAll(["a", "b"]).tryAcquire(), false);
  server.wipe();
  const several = await redlock.lockAll(["a", "b"]).acquire();
  lose(several, "taken");
  assert.throws(() => several.check(), { reason: "taken" });
  const permit = await redlock.semaphore("pool", 1).acquire();
  lose(permit);
  assert.deepEqual([permit.held, permit.slot], [false, 0]);
  const reasons = [];
  await redlock.election("scheduler").run(async (signal, lock) => {
    if (reasons.length > 0) return;
    lose(lock, "unreachable");
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    reasons.push(signal.reason.reason);
  });
  assert.deepEqual(reasons, ["unreachable"]);
});

test("wrong arguments", async () => {
  const server = new MemoryServer();
  const held = await new Redlock(server.url).lock("held").acquire();
  const wrong = [
    [() => server.hold(1), /string or a Uint8Array/],
    [() => server.hold(""), /empty/],
    [() => server.hold("a", "1"), /ttl must be a number of milliseconds/],
    [() => server.hold("a", -1), /ttl is -1 ms/],
    [() => server.release("redlock:fence:a"), /reserved/],
    [() => server.advance("1"), /by must be a number/],
    [() => server.advance(Number.NaN), /by/],
    [
      () => {
        server.available = 1;
      },
      /available must be true or false/,
    ],
    [() => lose(held, "broken"), /reason must be one of expired, taken/],
    [() => lose({}), /a lock of redlock-rs/],
  ];
  for (const [call, message] of wrong) {
    assert.throws(call, (error) => error instanceof LockInvalidArgument && message.test(error.message), String(call));
  }
  assert.equal(held.held, true);
  await held.release();
  assert.throws(() => lose(held), LockNotHeld);
  assert.throws(() => lose(lock("never acquired")), LockNotHeld);
});

test("its classes are the same in CommonJS", () => {
  const required = createRequire(import.meta.url)("redlock-rs/testing");
  assert.equal(required.MemoryServer, MemoryServer);
  assert.equal(required.lose, lose);
});
