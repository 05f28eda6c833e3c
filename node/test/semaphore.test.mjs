// Semaphores: as many holders as there are permits, each with a slot of its own.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Worker } from "node:worker_threads";
import {
  configure,
  inspectSemaphore,
  LockClosed,
  LockInvalidArgument,
  LockLost,
  LockTimeout,
  Redlock,
  semaphore,
  stats,
} from "redlock-rs";
import { lose, MemoryServer } from "redlock-rs/testing";
import { ends, start } from "./programs.mjs";
import { failure, fresh, Server, until } from "./servers.mjs";

let server;
let redlock;

before(async () => {
  server = await Server.start();
  redlock = new Redlock(server.url, { ttl: 10_000 });
});
after(() => server.stop());

/** The slots of a semaphore that the server has. */
async function taken(name) {
  const keys = await server.ask("KEYS", `redlock:slot:?:{${name}}`);
  return keys.map((key) => Number(key.split(":")[2])).sort();
}

/** Acquires all permits of a semaphore. */
const all = (name, permits) =>
  Promise.all(Array.from({ length: permits }, () => redlock.semaphore(name, permits).acquire()));

/** The error with which `action` is refused. */
async function refused(action, option, ...mentions) {
  const error = await failure(action);
  assert.ok(error instanceof LockInvalidArgument, `${error?.stack}`);
  assert.equal(error.option, option);
  assert.ok(error.cause instanceof TypeError);
  for (const text of mentions) assert.ok(error.message.includes(text), `${error.message} lacks ${text}`);
}

test("each holder has a slot of its own, and there are no more than permits", async () => {
  const name = fresh();
  const locks = await all(name, 3);
  assert.deepEqual(locks.map(({ slot }) => slot).sort(), [0, 1, 2]);
  assert.deepEqual(await taken(name), [0, 1, 2]);
  const next = redlock.semaphore(name, 3);
  assert.equal(next.slot, null);
  assert.deepEqual([next.name, next.names], [name, [name]]);
  assert.equal(await next.tryAcquire(), false);
  assert.equal(next.slot, null);
  const error = await failure(() => next.acquire({ timeout: 200 }));
  assert.ok(error instanceof LockTimeout);
  assert.equal(error.lockName, name);
  const waiting = next.acquire();
  const { slot, fence } = locks[1];
  await locks[1].release();
  assert.equal(locks[1].slot, null);
  await waiting;
  assert.equal(next.slot, slot);
  assert.ok(next.fence > fence);
  await Promise.all([next, locks[0], locks[2]].map((lock) => lock.release()));
  assert.deepEqual(await taken(name), []);
});

test("a free slot is found at once", async () => {
  const name = fresh();
  const locks = await all(name, 4);
  for (const lock of locks) {
    const { slot } = lock;
    await lock.release();
    const next = redlock.semaphore(name, 4);
    assert.equal(await next.tryAcquire(), true);
    assert.equal(next.slot, slot);
  }
});

test("a semaphore and a lock of the same name do not meet", async () => {
  const name = fresh();
  const lock = await redlock.lock(name).acquire();
  const permit = await redlock.semaphore(name, 1).acquire();
  assert.equal(permit.slot, 0);
  assert.equal(lock.slot, null);
  await lock.release();
  await permit.release();
});

test("a semaphore is locked while no slot is free", async () => {
  const name = fresh();
  const pool = redlock.semaphore(name, 2);
  assert.equal(await pool.isLocked(), false);
  const [one, two] = await all(name, 2);
  assert.equal(await pool.isLocked(), true);
  await one.release();
  assert.equal(await pool.isLocked(), false);
  await two.release();
});

test("inspection shows each slot, in order", async () => {
  const name = fresh();
  const permit = await redlock.semaphore(name, 3, { label: "worker 7" }).acquire();
  const views = await redlock.inspectSemaphore(Buffer.from(name), 3);
  assert.deepEqual(
    views.map(({ slot }) => slot),
    [0, 1, 2],
  );
  for (const { slot, name: shown, key, state, label, fence, nodes } of views) {
    const isOurs = slot === permit.slot;
    assert.deepEqual([shown, key], [name, `redlock:slot:${slot}:{${name}}`]);
    assert.deepEqual([state, label], isOurs ? ["held", "worker 7"] : ["free", null]);
    assert.equal(fence, isOurs ? permit.fence : null);
    assert.deepEqual([nodes.length, nodes[0].key], [1, key]);
  }
  assert.equal((await redlock.inspect(name)).slot, null);
  await permit.release();
});

test("a number of permits is a whole one, up to 1000", async () => {
  for (const permits of [1, 1000]) assert.equal(await redlock.semaphore(fresh(), permits).tryAcquire(), true);
  for (const [permits, ...mentions] of [
    [undefined, "permits must be a whole number, not undefined"],
    [null, "not null"],
    ["5", "not a string"],
    [5n, "not a bigint"],
    [{ ttl: 500 }, "not an object"],
    [1.5, "permits is 1.5, but must be a whole number"],
    [Number.NaN, "permits is NaN"],
    [Number.POSITIVE_INFINITY, "permits is inf"],
    [-1, "permits is -1"],
    [2 ** 32, "permits is 4294967296"],
    [0, "permits"],
    [1001, "permits", "1000"],
  ]) {
    for (let turn = 0; turn < 2; turn += 1) {
      await refused(() => redlock.semaphore("pool", permits), "permits", ...mentions);
      await refused(() => redlock.inspectSemaphore("pool", permits), "permits", ...mentions);
    }
  }
});

test("wrong names and options are refused, and a closed client", async () => {
  const client = new Redlock(server.url);
  client.semaphore("right", 2);
  for (const [name, ...mentions] of [
    [["a"], "not an array"],
    ["", "empty"],
    ["\ud800", "lone surrogates"],
    ["redlock:slot:0:{a}", "reserved"],
  ]) {
    await refused(() => client.semaphore(name, 2), "name", ...mentions);
    await refused(() => client.inspectSemaphore(name, 2), "name", ...mentions);
  }
  await refused(() => client.semaphore("pool", 2, { ttl: 1 }), "ttl", "ttl is 1 ms");
  await refused(() => client.semaphore("pool", 2, { permits: 2 }), "permits", "unknown option");
  await refused(() => client.semaphore("pool", 2, { protocol: "setnx" }), "protocol");
  client.close();
  assert.throws(() => client.semaphore("right", 2), LockClosed);
  await assert.rejects(client.inspectSemaphore("right", 2), LockClosed);
});

test("semaphores with other numbers of permits keep their own, however many there are", async () => {
  const name = fresh();
  const pools = Array.from({ length: 32 }, (_, index) => redlock.semaphore(name, index + 1, { timeout: 0 }));
  const last = redlock.semaphore(name, 1, { timeout: 0 });
  const [first] = pools;
  await first.acquire();
  await assert.rejects(last.acquire(), LockTimeout);
  // A caller with more permits has more slots.
  assert.equal(await pools[1].tryAcquire(), true);
  assert.deepEqual([first.slot, pools[1].slot], [0, 1]);
  await Promise.all([first, pools[1]].map((lock) => lock.release()));
});

test("a permit that is lost keeps its slot until it is released", async () => {
  const name = fresh();
  const permit = await redlock.semaphore(name, 2, { ttl: 1_000 }).acquire();
  const { signal, slot } = permit;
  await server.ask("SET", `redlock:slot:${slot}:{${name}}`, "someone else");
  await until(() => signal.aborted);
  assert.ok(signal.reason instanceof LockLost);
  assert.deepEqual([signal.reason.reason, signal.reason.lockName], ["taken", name]);
  assert.deepEqual([permit.held, permit.slot], [false, slot]);
  await assert.rejects(permit.release(), LockLost);
  assert.equal(permit.slot, null);
});

test("an aborted wait for a permit leaves no key", async () => {
  const name = fresh();
  const [one, two] = await all(name, 2);
  const controller = new AbortController();
  const waits = Array.from({ length: 5 }, () => failure(() => redlock.semaphore(name, 2).acquire(controller.signal)));
  await until(() => stats().redlock_waiting.points[0].value === 5);
  controller.abort(new Error("mine"));
  for (const error of await Promise.all(waits)) assert.equal(error.message, "mine");
  await Promise.all([one.release(), two.release()]);
  await until(async () => (await taken(name)).length === 0);
});

test("no more callers than permits are in a block", async () => {
  const name = fresh();
  const slots = new Set();
  let most = 0;
  const work = () =>
    redlock.semaphore(name, 3).using(async (signal, { slot }) => {
      assert.equal(signal.aborted, false);
      assert.ok(!slots.has(slot), `slot ${slot} has two holders`);
      slots.add(slot);
      most = Math.max(most, slots.size);
      assert.ok((await taken(name)).length <= 3);
      slots.delete(slot);
    });
  await Promise.all(Array.from({ length: 30 }, work));
  assert.ok(most <= 3, `${most}`);
});

test("the end of a process and of a thread release their permits", async () => {
  const name = fresh();
  const body = `
    const permits = await Promise.all([1, 2].map(() => redlock.semaphore(${JSON.stringify(name)}, 3).acquire()));
    console.log(permits.length);
  `;
  await ends(start([server], fresh(), body));
  assert.deepEqual(await taken(name), []);
  const code = `
    const { Redlock } = require("redlock-rs");
    const { parentPort, workerData } = require("node:worker_threads");
    const [url, name] = workerData;
    const permit = new Redlock(url, { ttl: 600_000 }).semaphore(name, 3);
    permit.acquire().then(() => parentPort.postMessage(permit.slot));
    setInterval(() => undefined, 1_000);
  `;
  const ours = await redlock.semaphore(name, 3).acquire();
  const worker = new Worker(code, { eval: true, workerData: [server.url, name] });
  const slot = await new Promise((resolve) => worker.once("message", resolve));
  assert.deepEqual(await taken(name), [slot, ours.slot].sort());
  await worker.terminate();
  await until(async () => (await taken(name)).length === 1);
  ours.check();
  await ours.release();
});

test("a semaphore of the default client, in memory", async (t) => {
  t.after(() => configure());
  configure(new MemoryServer().url);
  const one = await semaphore("pool", 1).acquire();
  assert.equal(await semaphore("pool", 1).tryAcquire(), false);
  assert.deepEqual(
    (await inspectSemaphore("pool", 2)).map(({ state }) => state),
    ["held", "free"],
  );
  lose(one, "deleted");
  assert.throws(() => one.check(), LockLost);
  await until(() => semaphore("pool", 1).tryAcquire());
});
