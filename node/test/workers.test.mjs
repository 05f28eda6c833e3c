import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { Worker } from "node:worker_threads";
import { Redlock } from "redlock-rs";
import { Server, until } from "./servers.mjs";

let server;
let redlock;

before(async () => {
  server = await Server.start();
  redlock = new Redlock(server.url);
});
after(() => server.stop());

test("three rounds of three workers, each terminated while it holds and waits", async () => {
  const contended = await redlock.lock("contended").acquire();
  for (const round of [1, 2, 3]) {
    const workers = [1, 2, 3].map((number) => {
      const mine = `mine-${round}-${number}`;
      const workerData = { url: server.url, mine, contended: "contended", counted: "counted" };
      return { mine, worker: new Worker(new URL("worker.mjs", import.meta.url), { workerData }) };
    });
    const held = workers.map(({ worker }) => once(worker, "message"));
    await Promise.all(held);
    for (const { mine } of workers) assert.equal(await server.ask("EXISTS", mine), 1);
    const codes = await Promise.all(workers.map(({ worker }) => worker.terminate()));
    assert.deepEqual(codes, [1, 1, 1]);
    // Long before its ttl.
    for (const { mine } of workers) await until(async () => (await server.ask("EXISTS", mine)) === 0);
  }
  // This thread is as it was, and nobody who is gone takes the lock.
  contended.check();
  await contended.release();
  assert.equal(await redlock.lock("contended").tryAcquire(), true);
});

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
