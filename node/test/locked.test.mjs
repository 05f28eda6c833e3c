import assert from "node:assert/strict";
import { test } from "node:test";
import { configure, inspect, LockInvalidArgument, LockTimeout, locked, Redlock } from "redlock-rs";
import { failure, fresh, serve } from "./servers.mjs";

const server = await serve();
const redlock = new Redlock(server.url);

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

test("each call runs under a fresh lock, with its this and its errors", async () => {
  const running = [];
  let most = 0;
  const account = {
    balance: 7,
    add: redlock.locked(fresh(), async function add(amount) {
      running.push(amount);
      most = Math.max(most, running.length);
      await pause(20);
      running.pop();
      return this.balance + amount;
    }),
  };
  assert.deepEqual(await Promise.all([1, 2, 3].map((amount) => account.add(amount))), [8, 9, 10]);
  assert.equal(most, 1);
  const broken = redlock.locked(fresh(), undefined, () => {
    throw new RangeError("mine");
  });
  assert.ok((await failure(() => broken())) instanceof RangeError);
});

test("it looks like the function to frameworks", () => {
  // Express tells a handler of errors by its four parameters.
  const handle = (_error, _request, _response, _next) => undefined;
  const all = redlock.locked("any", handle);
  const rest = redlock.locked("any", { passLock: true }, handle);
  const none = redlock.locked("any", { passLock: true }, () => undefined);
  assert.deepEqual([all.name, all.length, rest.length, none.length], ["handle", 4, 3, 0]);
});

test("the name comes from the arguments", async () => {
  const name = fresh();
  const seen = [];
  const work = redlock.locked(
    (user) => `${name}:${user}`,
    { passLock: true },
    (lock, user) => {
      seen.push([lock.name, lock.held, user]);
    },
  );
  await work("ada");
  await work("bob");
  assert.deepEqual(seen, [
    [`${name}:ada`, true, "ada"],
    [`${name}:bob`, true, "bob"],
  ]);
  const wrong = redlock.locked(
    () => undefined,
    undefined,
    () => assert.fail("it ran"),
  );
  assert.ok((await failure(() => wrong())) instanceof LockInvalidArgument);
});

test("a call is skipped if others hold the lock", async () => {
  const name = fresh();
  let runs = 0;
  const job = redlock.locked(name, { skipIfHeld: true }, async () => {
    runs += 1;
    return "done";
  });
  const held = await redlock.lock(name).acquire();
  assert.equal(await job(), undefined);
  assert.equal(runs, 0);
  const patient = redlock.locked(name, { skipIfHeld: true, timeout: 10_000 }, async () => "waited");
  const waiting = patient();
  await pause(20);
  await held.release();
  assert.equal(await waiting, "waited");
  assert.equal(await job(), "done");
});

test("only the call's own lock is skipped", async () => {
  const [outer, inner] = [fresh(), fresh()];
  const held = await redlock.lock(inner).acquire();
  const nested = redlock.locked(outer, { skipIfHeld: true }, () => redlock.lock(inner).acquire({ timeout: 0 }));
  assert.ok((await failure(() => nested())) instanceof LockTimeout);
  await held.release();
  const away = new Redlock("unix:///nowhere/redlock.sock").locked("foo", { skipIfHeld: true }, () => 1);
  assert.equal((await failure(() => away())).code, "unavailable");
});

test("each call has several names, or a permit", async () => {
  const [name, other] = [fresh("one"), fresh("other")];
  const work = redlock.locked(
    (...names) => names,
    { passLock: true, skipIfHeld: true },
    (lock, ...names) => [lock.names, names],
  );
  assert.deepEqual(await work(other, name), [
    [name, other],
    [other, name],
  ]);
  const held = await redlock.lock(name).acquire();
  assert.equal(await work(other, name), undefined);
  await held.release();

  const slots = new Set();
  let most = 0;
  const pooled = redlock.locked(name, { permits: 2, passLock: true }, async ({ slot }) => {
    slots.add(slot);
    most = Math.max(most, slots.size);
    await pause(20);
    slots.delete(slot);
  });
  await Promise.all(Array.from({ length: 6 }, pooled));
  assert.equal(most, 2);
});

test("wrong arguments are refused before the first call", async () => {
  const body = () => 1;
  for (const given of [
    ["foo", { ttl: 1 }, body],
    [() => "foo", { ttl: 1 }, body],
    ["foo", { skipIfHeld: 1 }, body],
    ["foo", { skip: true }, body],
    ["foo", body, {}],
    ["foo"],
    ["", undefined, body],
    [["a", 1], undefined, body],
    ["foo", { permits: 0 }, body],
    [["a", "b"], { permits: 2 }, body],
  ]) {
    assert.ok((await failure(() => redlock.locked(...given))) instanceof LockInvalidArgument);
  }
});

test("a function uses the default client of each call", async (t) => {
  t.after(() => configure());
  configure("memory://locked-first");
  const name = fresh();
  const work = locked(name, { ttl: 20_000, passLock: true }, async (lock) => {
    return [lock.remaining > 15_000 && lock.remaining <= 20_000, (await inspect(name)).nodes[0]];
  });
  for (const node of ["memory://locked-second", "memory://locked-third"]) {
    configure(node, { ttl: 30_000 });
    const [ownTtl, view] = await work();
    assert.ok(ownTtl, "its own options stay");
    assert.deepEqual([view.node, view.state], [node, "held"]);
  }
});
