// The Node worker of the benchmark: the Node face, and the peers of `tests/peers`. README.md has its protocol.
//
//   node node_worker.mjs --ttl-ms 10000 node-redlock redis://127.0.0.1:6379

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

const require = createRequire(import.meta.url);

/** The most samples of a turn; more are thinned out. */
const MOST_SAMPLES = 2000;

/** How many tasks acquire the locks for `hold`. */
const HANDS = 64;

/** Packages of the subjects that are not called like theirs. */
const PACKAGES = { "node-redlock": "redlock" };

/** The clock that all processes of the machine share. */
const nowNs = () => Number(process.hrtime.bigint());

/** Processor time of this process. */
const cpuNs = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) * 1000;
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { "ttl-ms": { type: "string", default: "10000" } },
});
const ttlMs = Number(values["ttl-ms"]);
const [subject, ...urls] = positionals;

/** A lock, a shared lock and a semaphore of the subject, and the subject's version. */
async function open() {
  if (subject === "node") {
    const { Redlock } = require("../../node");
    const client = new Redlock(urls, { ttl: ttlMs });
    return {
      lock: (name) => client.lock(name),
      reader: (name) => client.lock(name, { shared: true }),
      semaphore: (name, permits) => client.semaphore(name, permits),
      version: require("../../node/package.json").version,
    };
  }
  const { PEERS } = await import("../peers/node/peers.mjs");
  const session = PEERS[subject].open(urls);
  // Some packages do not export their manifest.
  const manifest = new URL(`../peers/node/node_modules/${PACKAGES[subject] ?? subject}/package.json`, import.meta.url);
  return {
    lock: (name) => session.lock(name, ttlMs, null),
    semaphore: (name, permits) => session.semaphore(name, permits, ttlMs, null),
    version: JSON.parse(readFileSync(manifest, "utf8")).version,
  };
}

const { lock, reader, semaphore, version } = await open();
const held = [];

/** Acquires a lock without a time limit. */
async function take(handle) {
  if (!(await handle.acquire())) throw new Error("the lock was not acquired");
  return handle;
}

/** The result of a turn. */
function tally(samples, wallNs, cpu) {
  const step = Math.max(Math.ceil(samples.length / MOST_SAMPLES), 1);
  return {
    count: samples.length,
    wall_ns: wallNs,
    cpu_ns: cpu,
    samples_ns: samples.filter((_, i) => i % step === 0),
  };
}

const ops = {
  async pairs({ names, seconds, count, shared = false }) {
    const make = shared ? reader : lock;
    const begunNs = nowNs();
    const cpu = cpuNs();
    const endNs = seconds === undefined ? Infinity : begunNs + seconds * 1e9;
    const most = seconds === undefined ? Math.floor(count / names.length) : Infinity;
    const turn = async (name) => {
      const samples = [];
      let now = nowNs();
      while (samples.length < most && (samples.length === 0 || now < endNs)) {
        const askedNs = now;
        await (await take(make(name))).release();
        now = nowNs();
        samples.push(now - askedNs);
      }
      return samples;
    };
    const samples = (await Promise.all(names.map(turn))).flat();
    return tally(samples, nowNs() - begunNs, cpuNs() - cpu);
  },

  /** Started with --expose-gc and a young generation into which all of it fits. */
  async allocations({ names, count }) {
    await ops.pairs({ names, count });
    globalThis.gc();
    const before = process.memoryUsage().heapUsed;
    await ops.pairs({ names, count });
    const bytes = process.memoryUsage().heapUsed - before;
    return { count, bytes, counted: "bytes on V8's heap" };
  },

  async acquire({ name }) {
    const askedNs = nowNs();
    held.push(await take(lock(name)));
    return { asked_ns: askedNs, held_ns: nowNs() };
  },

  async release() {
    const askedNs = nowNs();
    await held.pop().release();
    return { asked_ns: askedNs, released_ns: nowNs() };
  },

  async contend({ name, start_ns, end_ns, hold_ms, permits, tasks = 1, writers }) {
    await sleep(Math.max((start_ns - nowNs()) / 1e6, 0));
    const cpu = cpuNs();
    // Of each hold, the instants at which it was asked for, began and ended.
    const reads = [];
    const writes = [];
    const compete = async (make, turns) => {
      for (let askedNs = nowNs(); askedNs < end_ns; askedNs = nowNs()) {
        const handle = await take(make());
        const sinceNs = nowNs();
        await sleep(hold_ms);
        turns.push([askedNs, sinceNs, nowNs()]);
        await handle.release();
      }
    };
    const alone = () => (permits === undefined ? lock(name) : semaphore(name, permits));
    const works = Array.from({ length: tasks }, (_, task) =>
      task < (writers ?? tasks) ? compete(alone, writes) : compete(() => reader(name), reads),
    );
    await Promise.all(works);
    const turns = [...reads, ...writes];
    const waits = turns.map(([askedNs, sinceNs]) => sinceNs - askedNs);
    const inTime = turns.filter(([, sinceNs]) => sinceNs < end_ns);
    return {
      ...tally(waits, end_ns - start_ns, cpuNs() - cpu),
      count: inTime.length,
      held_ns: inTime.reduce((sum, [, sinceNs, untilNs]) => sum + untilNs - sinceNs, 0),
      ...(permits === undefined ? {} : { holds_ns: turns.map(([, ...hold]) => hold) }),
      ...(writers === undefined ? {} : { reads_ns: reads, writes_ns: writes }),
    };
  },

  async hold({ prefix, count }) {
    const begunNs = nowNs();
    const hand = async (first) => {
      for (let i = first; i < count; i += HANDS) held.push(await take(lock(`${prefix}${i}`)));
    };
    await Promise.all(Array.from({ length: HANDS }, (_, first) => hand(first)));
    return { held: held.length, wall_ns: nowNs() - begunNs };
  },

  async wait({ names }) {
    for (const name of names) take(lock(name)).catch((error) => console.error(`a waiter gave up: ${error}`));
    return { waiting: names.length };
  },

  async usage() {
    return { cpu_ns: cpuNs() };
  },
};

async function perform({ op, ...request }) {
  try {
    if (!Object.hasOwn(ops, op)) throw new Error(`no such op: ${op}`);
    return await ops[op](request);
  } catch (error) {
    return { error: `${error.name}: ${error.message}` };
  }
}

console.log(JSON.stringify({ ready: { version } }));
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await perform(JSON.parse(line))));
}
process.exit(0);
