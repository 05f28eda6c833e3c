// The metrics of the process.
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { Worker } from "node:worker_threads";
import { countByName, LockInvalidArgument, Redlock, stats } from "redlock-rs";
import { lose, MemoryServer } from "redlock-rs/testing";
import { ends, run } from "./programs.mjs";
import { fresh, Server, until } from "./servers.mjs";

const KINDS = {
  redlock_acquire_duration_seconds: "histogram",
  redlock_events_dropped_total: "counter",
  redlock_held: "gauge",
  redlock_hold_duration_seconds: "histogram",
  redlock_lost_total: "counter",
  redlock_node_connections_total: "counter",
  redlock_node_duration_seconds: "histogram",
  redlock_node_evicts: "gauge",
  redlock_node_up: "gauge",
  redlock_releases_pending: "gauge",
  redlock_releases_total: "counter",
  redlock_renewal_margin_ratio: "histogram",
  redlock_renewals_total: "counter",
  redlock_waiting: "gauge",
};

let server;
let redlock;

before(async () => {
  server = await Server.start();
  redlock = new Redlock(server.url);
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

test("all metrics are there from the beginning, and nothing is started", async () => {
  const body = `
    import { stats } from "redlock-rs";
    console.log(JSON.stringify(stats()));
  `;
  const { output } = await ends(run(body));
  const metrics = JSON.parse(output);
  assert.deepEqual(Object.fromEntries(Object.entries(metrics).map(([name, { kind }]) => [name, kind])), KINDS);
  for (const [name, { kind, about, points, ...more }] of Object.entries(metrics)) {
    assert.match(about, /^[A-Z].*\.$/, name);
    assert.deepEqual(more, {});
    if (kind === "histogram") assert.deepEqual(points, [], "none without an observation");
    for (const { value } of points) assert.equal(value, 0, name);
  }
});

test("a point is either a number or a histogram", async () => {
  await redlock.lock(fresh()).using(() => undefined);
  for (const [name, { kind, points }] of Object.entries(stats())) {
    for (const point of points) {
      const expected = kind === "histogram" ? ["histogram", "labels"] : ["labels", "value"];
      assert.deepEqual(Object.keys(point).sort(), expected, name);
      if (kind !== "histogram") continue;
      const { count, sum, buckets } = point.histogram;
      assert.ok(count > 0 && sum >= 0, name);
      assert.deepEqual(buckets.at(-1), { le: Number.POSITIVE_INFINITY, count }, name);
      for (const [index, bucket] of buckets.slice(1).entries()) {
        assert.ok(bucket.le > buckets[index].le && bucket.count >= buckets[index].count, name);
      }
    }
  }
});

test("an acquire is counted by how it ended, and by whether others held the lock", async () => {
  const acquires = "redlock_acquire_duration_seconds";
  const name = fresh();
  const [one, other] = [redlock.lock(name), redlock.lock(name)];
  assert.equal(await growth(acquires, { outcome: "acquired", contended: "false" }, () => one.acquire()), 1);
  assert.equal(total("redlock_held"), 1);
  const timeout = () => other.acquire({ timeout: 500 }).catch(() => undefined);
  assert.equal(await growth(acquires, { outcome: "timeout" }, timeout), 1);
  const waiting = other.acquire();
  await until(() => total("redlock_waiting") === 1);
  const contended = { outcome: "acquired", contended: "true" };
  const handOver = async () => {
    await one.release();
    await waiting;
  };
  assert.equal(await growth(acquires, contended, handOver), 1);
  assert.equal(total("redlock_waiting"), 0);
  assert.equal(await growth("redlock_releases_total", { outcome: "released" }, () => other.release()), 1);
  assert.equal(total("redlock_held"), 0);
});

test("an aborted acquire is counted as cancelled", async () => {
  const held = await redlock.lock(fresh()).acquire();
  const controller = new AbortController();
  const waiting = redlock.lock(held.name).acquire(controller.signal);
  await until(() => total("redlock_waiting") === 1);
  const labels = { outcome: "cancelled" };
  const before = total("redlock_acquire_duration_seconds", labels);
  controller.abort();
  await assert.rejects(waiting);
  await until(() => total("redlock_acquire_duration_seconds", labels) === before + 1);
  await until(() => total("redlock_waiting") === 0);
  await held.release();
});

test("losses are counted by reason, and renewals with their margin", async () => {
  const lock = await redlock.lock(fresh(), { ttl: 1_000 }).acquire();
  const before = total("redlock_renewal_margin_ratio");
  await until(() => total("redlock_renewal_margin_ratio") > before);
  assert.ok(total("redlock_renewals_total", { outcome: "renewed" }) > 0);
  const lost = { reason: "taken" };
  const count = await growth("redlock_lost_total", lost, async () => {
    await server.ask("SET", lock.name, "someone else");
    await until(() => !lock.held);
  });
  assert.equal(count, 1);
  assert.ok(total("redlock_hold_duration_seconds", { end: "lost" }) > 0);
  await lock.release().catch(() => undefined);
  assert.equal(total("redlock_held"), 0);
});

test("nodes are counted by their address, without a password", async (t) => {
  const guarded = await Server.start({ requirepass: "S3CR3T" });
  t.after(() => guarded.stop());
  await new Redlock(`${guarded.url}?pass=S3CR3T`).lock(fresh()).using(() => undefined);
  const [{ labels, value }] = points("redlock_node_up").filter(({ labels }) => labels.node.includes(guarded.socket));
  assert.deepEqual(labels, { node: guarded.url });
  assert.equal(value, 1);
  assert.ok(total("redlock_node_connections_total", labels) > 0);
  assert.equal(total("redlock_node_evicts", labels), 0);
  for (const script of ["acquire", "release"]) {
    assert.ok(total("redlock_node_duration_seconds", { ...labels, script }) > 0, script);
  }
});

test("a node that is down is not up", async () => {
  const other = await Server.start();
  const client = new Redlock(other.url);
  await client.lock(fresh()).using(() => undefined);
  const up = () => points("redlock_node_up").find(({ labels }) => labels.node.includes(other.socket)).value;
  assert.equal(up(), 1);
  await other.stop();
  await client
    .lock(fresh())
    .tryAcquire()
    .catch(() => undefined);
  assert.equal(up(), 0);
});

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
