// The sockets that the event loop watches itself, when it makes one call after the other.
import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { Worker } from "node:worker_threads";
import { Redlock } from "redlock-rs";
import { ends, start } from "./programs.mjs";
import { cluster, fresh, until } from "./servers.mjs";

/** More calls than it takes until the loop watches the sockets. */
const MANY = 100;

let servers;
let one;
let five;

before(async () => {
  servers = await cluster(5);
  one = new Redlock(servers[0].url);
  five = new Redlock(servers.map(({ url }) => url));
});
after(() => Promise.all(servers.map((server) => server.stop())));

/** Acquires and releases again and again. */
async function use(redlock, times = MANY) {
  const lock = redlock.lock(fresh());
  for (let turn = 0; turn < times; turn += 1) {
    await lock.acquire();
    await lock.release();
  }
}

/** Lets the loop do nothing for so many milliseconds. */
function block(time) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, time);
}

test("a call that is answered while the loop is busy has its lock", async (t) => {
  const events = [];
  const listener = (event) => events.push(event);
  subscribe("redlock:node", listener);
  t.after(() => unsubscribe("redlock:node", listener));
  const redlock = new Redlock(
    servers.map(({ url }) => url),
    { nodeTimeout: 2_000 },
  );
  await use(redlock);
  const lock = redlock.lock(fresh());
  for (let turn = 0; turn < 2; turn += 1) {
    await use(redlock, 50);
    const acquired = lock.acquire({ timeout: 0 });
    block(3_000);
    await acquired;
    await lock.release();
  }
  assert.deepEqual(events, [], "the nodes have answered in time");
});

test("a lock is renewed while the loop that watches the sockets is busy", async () => {
  const held = await one.lock(fresh(), { ttl: 3_000 }).acquire();
  await use(one);
  block(4_000);
  held.check();
  await use(one);
  assert.equal(await servers[0].ask("EXISTS", held.name), 1);
  await held.release();
});

test("threads that use the same servers take turns at watching", async () => {
  const code = `
    const { Redlock } = require("redlock-rs");
    const { parentPort, workerData } = require("node:worker_threads");
    const redlock = new Redlock(workerData, { ttl: 600_000 });
    (async () => {
      for (let turn = 0; ; turn += 1) {
        await redlock.lock("turn-" + (turn % 3)).using(() => undefined);
        if (turn === ${MANY}) parentPort.postMessage("used");
      }
    })();
  `;
  const workers = [1, 2].map(() => new Worker(code, { eval: true, workerData: servers.map(({ url }) => url) }));
  const used = workers.map((worker) => once(worker, "message"));
  await use(five);
  await Promise.all(used);
  assert.deepEqual(await Promise.all(workers.map((worker) => worker.terminate())), [1, 1]);
  await use(five);
  await until(async () => (await servers[0].locks()).length === 0);
});

test("a process that has used a lock many times ends at once, however that comes", async () => {
  const use = `for (let turn = 0; turn < ${MANY}; turn += 1) { await lock.acquire(); await lock.release(); }`;
  for (const [end, code] of [
    ["await lock.acquire();", 0],
    ["process.exit(5);", 5],
  ]) {
    const name = fresh();
    await ends(start(servers, name, `${use} console.log("used"); ${end}`), code);
    assert.equal(await servers[0].ask("EXISTS", name), 0, end);
  }
});
