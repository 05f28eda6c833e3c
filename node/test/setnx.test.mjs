// The older SETNX protocol, for a key that is shared with code that still uses it.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { LockInvalidArgument, LockLost, Redlock } from "redlock-rs";
import { fresh, Server, until } from "./servers.mjs";

let server;
let redlock;

before(async () => {
  server = await Server.start();
  redlock = new Redlock(server.url, { ttl: 10_000 });
});
after(() => server.stop());

test("a lock without fence and renewal", async () => {
  const name = fresh();
  const lock = redlock.lock(name, { protocol: "setnx", ttl: 2_000 });
  assert.throws(() => lock.fence, LockInvalidArgument);
  await assert.rejects(lock.extend(), LockInvalidArgument);
  await lock.acquire();
  const expiry = Number(await server.ask("GET", name));
  const now = Number((await server.ask("TIME"))[0]);
  assert.ok(now <= expiry - 2 && expiry - 2 <= now + 3, `${expiry} at ${now}`);
  lock.check();
  assert.ok(lock.held && lock.remaining > 0 && lock.remaining < 2_000);
  assert.throws(() => lock.fence, { code: "invalid_argument", message: /setnx/ });
  await assert.rejects(lock.extend(5_000), { code: "invalid_argument", message: /setnx/ });
  assert.equal(await redlock.lock(name, { protocol: "setnx" }).tryAcquire(), false);
  assert.equal(await redlock.lock(name).tryAcquire(), false);
  const view = await redlock.inspect(name);
  assert.equal(view.state, "foreign");
  assert.ok(view.ttlLeft > 0);
  await lock.release();
  assert.equal(await server.ask("EXISTS", name), 0);
});

test("its loss aborts its signal", async () => {
  const name = fresh();
  const lock = redlock.lock(name, { protocol: "setnx", ttl: 200 });
  await lock.acquire();
  const { signal } = lock;
  await until(() => signal.aborted);
  assert.equal(signal.reason.reason, "expired");
  await assert.rejects(lock.release(), LockLost);
  await until(async () => (await server.ask("EXISTS", name)) === 0);
});

test("what it cannot do is invalid before anything is sent", () => {
  const several = ["memory://setnx-1", "memory://setnx-2"];
  assert.throws(() => new Redlock(several).lock("foo", { protocol: "setnx" }), /one node/);
  assert.throws(() => new Redlock(several, { protocol: "setnx" }), /one node/);
  assert.throws(() => new Redlock(server.url, { autoRenew: true }).lock("foo", { protocol: "setnx" }), /autoRenew/);
  assert.throws(() => redlock.lock("foo", { protocol: "setnx", autoRenew: true }), LockInvalidArgument);
  for (const wrong of ["SETNX", "", 1, true]) {
    assert.throws(() => redlock.lock("foo", { protocol: wrong }), { code: "invalid_argument", message: /protocol/ });
  }
  redlock.lock("foo", { protocol: "setnx", autoRenew: false });
});

test("a client has it for its locks", async () => {
  const older = new Redlock(server.url, { protocol: "setnx" });
  const name = fresh();
  await older.lock(name).using(async (_signal, lock) => {
    assert.ok(Number(await server.ask("GET", name)) > 0);
    assert.throws(() => lock.fence, LockInvalidArgument);
  });
  await older.lock(name, { protocol: "plain" }).using((_signal, lock) => assert.ok(lock.fence > 0));
});

test("an aborted acquire leaves no key", async () => {
  const name = fresh();
  const abort = new AbortController();
  const acquire = redlock.lock(name, { protocol: "setnx", ttl: 60_000 }).acquire({ signal: abort.signal });
  abort.abort();
  await assert.rejects(acquire, { name: "AbortError" });
  await until(async () => (await server.ask("EXISTS", name)) === 0);
});
