import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { Redlock } from "redlock-rs";
import { run } from "./programs.mjs";
import { cluster, serve, until } from "./servers.mjs";

const server = await serve();
const redlock = new Redlock(server.url);

test("a worker that ends by itself releases", async () => {
  const code = `
    const { Redlock } = require("redlock-rs");
    const { workerData } = require("node:worker_threads");
    const lock = new Redlock(workerData, { ttl: 600_000 }).lock("ended");
    lock.acquire();
  `;
  const ours = await redlock.lock("ours").acquire();
  const worker = new Worker(code, { eval: true, workerData: server.url });
  const [ended] = await once(worker, "exit");
  assert.equal(ended, 0);
  assert.ok(
    (await server.ask("GET", "redlock:fence:{ended}")) !== null,
    "it was acquired: a pending call holds the thread",
  );
  await until(async () => (await server.ask("EXISTS", "ended")) === 0);
  ours.check();
  await ours.release();
  assert.equal(await ours.tryAcquire(), true, "the end of a thread is not the end of the process");
});

test("a worker that ends after a lock was taken, and before its caller continues, releases", async () => {
  const code = `
    const { Redlock } = require("redlock-rs");
    const { parentPort, workerData } = require("node:worker_threads");
    const redlock = new Redlock(workerData.url, { ttl: 600_000 });
    const first = redlock.lock("first", { ttl: 2_000, autoRenew: false });
    const lock = redlock.lock("between");
    first.acquire().then(() => {
      // It runs in the turn in which the lock is taken.
      first.signal.addEventListener("abort", () => {
        parentPort.postMessage(lock.held);
        for (;;);
      });
      lock.acquire().then(() => parentPort.postMessage("continued"));
      // Until the server has granted it.
      Atomics.wait(workerData.granted, 0, 0);
      // Until the first one is nearly over. A busy loop would take the processor from the others.
      Atomics.wait(workerData.granted, 0, 1, first.remaining);
      while (first.held);
      // Both are in one batch.
      for (const end = performance.now() + 50; performance.now() < end; );
    });
  `;
  const granted = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(code, { eval: true, workerData: { url: server.url, granted } });
  const messages = [];
  worker.on("message", (message) => messages.push(message));
  const heard = once(worker, "message");
  await until(async () => (await server.ask("EXISTS", "between")) === 1);
  Atomics.store(granted, 0, 1);
  Atomics.notify(granted, 0);
  await heard;
  assert.equal(await worker.terminate(), 1);
  assert.deepEqual(messages, [true], "it was taken, and nobody continued");
  await until(async () => (await server.ask("EXISTS", "between")) === 0);
});

test("workers, each terminated in the middle of a call", async () => {
  const code = `
    const { Redlock } = require("redlock-rs");
    const { parentPort, workerData } = require("node:worker_threads");
    const { url, number, contended } = workerData;
    const redlock = new Redlock(url, { ttl: 600_000 });
    const name = "worker-" + number + "-";
    const calls = [
      async (lock) => lock.acquire(),
      async (lock) => lock.acquire().then(() => lock.extend()),
      async (lock) => lock.acquire().then(() => lock.release()),
      async (lock) => lock.using(() => redlock.inspect(name)),
      async () => redlock.lock(contended).acquire(),
    ];
    parentPort.postMessage("begins");
    (async () => {
      for (;;) await Promise.all(calls.map((call, kind) => {
        return call(redlock.lock(name + kind, { timeout: 5 })).catch(() => undefined);
      }));
    })();
  `;
  const contended = await redlock.lock("wanted").acquire();
  const one = async (number) => {
    const workerData = { url: server.url, number, contended: "wanted" };
    const worker = new Worker(code, { eval: true, workerData });
    await once(worker, "message");
    // This spans from the beginning of the first call to the middle of later ones.
    await setTimeout(number % 20);
    assert.equal(await worker.terminate(), 1);
  };
  for (let number = 0; number < 40; number += 4) {
    await Promise.all([0, 1, 2, 3].map((more) => one(number + more)));
    contended.check();
  }
  await contended.extend();
  // This is long before their ttl ends.
  await until(async () => (await server.locks()).every((key) => !key.startsWith("worker")));
  await contended.release();
  assert.equal(await redlock.lock("wanted").tryAcquire(), true, "nobody who is gone takes it");
});

test("what only workers hold is released at the end of the process, however that comes", async () => {
  const servers = await cluster(5);
  const code = `
    const { Redlock } = require("redlock-rs");
    const { parentPort, workerData } = require("node:worker_threads");
    const redlock = new Redlock(workerData, { ttl: 600_000 });
    globalThis.locks = Array.from({ length: 20 }, (_, number) => redlock.lock("held-" + number));
    Promise.all(locks.map((lock) => lock.acquire())).then(() => parentPort.postMessage("held"));
    setInterval(() => undefined, 1_000);
  `;
  const workerData = servers.map(({ url }) => url);
  const ends = { "process.exit(7)": 7, "throw new Error('mine')": 1, "worker.unref()": 0 };
  try {
    for (const [end, expected] of Object.entries(ends)) {
      const program = run(`
        import { Worker } from "node:worker_threads";
        const options = { eval: true, execArgv: [], workerData: ${JSON.stringify(workerData)} };
        const worker = new Worker(${JSON.stringify(code)}, options);
        worker.on("message", () => { ${end}; });
      `);
      assert.equal((await program.ended).code, expected, program.errors);
      const left = await Promise.all(servers.map((server) => server.locks()));
      assert.deepEqual(left.flat(), [], end);
    }
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
});
