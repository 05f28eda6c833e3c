// The metrics of the process.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { Worker } from "node:worker_threads";
import { countByName, LockInvalidArgument, Redlock, stats } from "redlock-rs";
import { lose, MemoryServer } from "redlock-rs/testing";
import { fresh, Server, until } from "./servers.mjs";

let server;

before(async () => {
  server = await Server.start();
});
after(() => server.stop());

/** The points of a metric with these labels. */
function points(name, labels = {}) {
  const has = (point) => Object.entries(labels).every(([label, value]) => point.labels[label] === value);
  return stats()[name].points.filter(has);
}

/** The sum of the points of a metric with these labels: of a histogram, how many observations there were. */
function total(name, labels) {
  return points(name, labels).reduce((sum, { value, histogram }) => sum + (value ?? histogram.count), 0);
}

/** How much a metric grows while `action` runs. */
async function growth(name, labels, action) {
  const before = total(name, labels);
  await action();
  return total(name, labels) - before;
}

test("worker threads are counted with the process", async () => {
  const code = `
    const { Redlock } = require("redlock-rs");
    const { workerData } = require("node:worker_threads");
    new Redlock(workerData).lock("in a worker").using(() => undefined);
  `;
  const count = await growth("redlock_acquire_duration_seconds", { outcome: "acquired" }, async () => {
    await once(new Worker(code, { eval: true, workerData: server.url }), "exit");
  });
  assert.equal(count, 1);
});

test("the first names are counted apart if the program asks for it", async () => {
  const client = new Redlock(new MemoryServer().url);
  const [first, second, third] = ["a", "b", "c"].map((what) => client.lock(fresh(what)));
  const names = () => new Set(points("redlock_held").map(({ labels }) => labels.name));
  assert.deepEqual(names(), new Set([undefined]));
  countByName(2);
  for (const lock of [first, second, third]) await lock.acquire();
  assert.deepEqual(names(), new Set([undefined, first.name, second.name]));
  assert.equal(total("redlock_held", { name: first.name }), 1);
  assert.equal(total("redlock_held"), 3);
  lose(second, "expired");
  await until(() => total("redlock_lost_total", { name: second.name, reason: "expired" }) === 1);
  for (const lock of [first, third]) await lock.release();
  assert.equal(total("redlock_held"), 0);
  countByName(0);
  const labels = { name: first.name, outcome: "acquired" };
  assert.equal(await growth("redlock_acquire_duration_seconds", labels, () => first.acquire()), 0);
  await first.release();
});

test("the number of names is checked", () => {
  for (const most of [-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, "5", null, undefined, {}]) {
    const isRefused = (error) => error instanceof LockInvalidArgument && error.option === "most";
    assert.throws(() => countByName(most), isRefused, String(most));
  }
});
