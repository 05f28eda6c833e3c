// The sockets that the event loop watches itself, when it makes one call after the other.
import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { Worker } from "node:worker_threads";
import { Redlock } from "redlock-rs";
import { ends, start } from "./programs.mjs";
import { cluster, fresh, until } from "./servers.mjs";

/** More calls than it takes until the loop watches the sockets. */
const MANY = 200;

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

/** How often the background has gone to sleep. */
function sleeps() {
  const tasks = readdirSync("/proc/self/task").map((task) => readFileSync(`/proc/self/task/${task}/status`, "utf8"));
  const background = tasks.find((status) => /^Name:\tredlock$/m.test(status));
  return Number(/^voluntary_ctxt_switches:\t(\d+)$/m.exec(background)[1]);
}

/**
 * Makes one call after the other until the background sleeps meanwhile. A busy machine can keep the loop from the
 * sockets for long enough that the background takes them back.
 */
async function useUntilAsleep(redlock) {
  const slept = [];
  for (let round = 0; round < 20; round += 1) {
    const asleep = sleeps();
    await use(redlock);
    slept.push(sleeps() - asleep);
    if (slept.at(-1) < MANY / 4) return;
  }
  assert.fail(`of ${2 * MANY} calls each, it has slept ${slept} times`);
}

test("one call after the other leaves the background asleep", { skip: !existsSync("/proc/self/task") }, async () => {
  const urls = servers.map(({ url }) => url);
  // The background cleans up at a node that did not answer in time.
  for (const nodes of [urls.slice(0, 1), urls]) {
    const redlock = new Redlock(nodes, { nodeTimeout: 3_000 });
    await use(redlock);
    await useUntilAsleep(redlock);
  }
});

test("the background reads all answers if the environment says so", {
  skip: !existsSync("/proc/self/task"),
}, async () => {
  process.env.REDLOCK_SOCKETS = "background";
  const program = start(
    servers.slice(0, 1),
    fresh(),
    `
    import { readdirSync, readFileSync } from "node:fs";
    ${sleeps}
    await lock.using(() => undefined);
    const asleep = sleeps();
    for (let turn = 0; turn < ${MANY}; turn += 1) await lock.using(() => undefined);
    console.log(sleeps() - asleep);
  `,
  );
  delete process.env.REDLOCK_SOCKETS;
  await ends(program);
  assert.ok(Number(program.output) > MANY, program.output);
});

test("a call that is answered while the loop is busy has its lock", async (t) => {
  const events = [];
  const listener = (event) => events.push(event);
  subscribe("redlock:node", listener);
  t.after(() => unsubscribe("redlock:node", listener));
  const redlock = new Redlock(
    servers.map(({ url }) => url),
    { nodeTimeout: 1_000 },
  );
  await use(redlock);
  const lock = redlock.lock(fresh());
  for (let turn = 0; turn < 2; turn += 1) {
    await use(redlock, 50);
    const acquired = lock.acquire({ timeout: 0 });
    block(1_500);
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
  for (let round = 0; round < 3; round += 1) {
    const workers = [1, 2].map(() => new Worker(code, { eval: true, workerData: servers.map(({ url }) => url) }));
    const used = workers.map((worker) => once(worker, "message"));
    await use(five);
    await Promise.all(used);
    await use(five);
    assert.deepEqual(await Promise.all(workers.map((worker) => worker.terminate())), [1, 1]);
    await use(five);
  }
  await until(async () => (await servers[0].locks()).length === 0);
});

test("the context of a caller is its own", async () => {
  const storage = new AsyncLocalStorage();
  await use(one);
  for (const context of ["first", "second"]) {
    await storage.run(context, async () => {
      await use(one, 20);
      assert.equal(storage.getStore(), context);
    });
  }
  assert.equal(storage.getStore(), undefined);
});

test("a process that has used a lock many times ends at once, however that comes", async () => {
  const use = `for (let turn = 0; turn < ${MANY}; turn += 1) { await lock.acquire(); await lock.release(); }`;
  for (const [end, code] of [
    ["await lock.acquire();", 0],
    ["process.exit(5);", 5],
    ["process.reallyExit(5);", 5],
  ]) {
    const name = fresh();
    await ends(start(servers, name, `${use} console.log("used"); ${end}`), code);
    assert.equal(await servers[0].ask("EXISTS", name), 0, end);
  }
});

test("what throws where a call continues is an uncaught exception", async () => {
  const body = `
    process.on("uncaughtException", (error) => { console.log(error.message); process.exit(3); });
    for (let turn = 0; turn < ${MANY}; turn += 1) { await lock.acquire(); await lock.release(); }
    lock.acquire().then(() => process.nextTick(() => { throw new Error("mine"); }));
  `;
  const { output } = await ends(start(servers, fresh(), body), 3);
  assert.equal(output, "mine\n");
});
