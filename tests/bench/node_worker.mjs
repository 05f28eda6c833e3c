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

/** A lock of the subject, and the subject's version. */
async function open() {
  if (subject === "node") {
    const { Redlock } = require("../../node");
    const client = new Redlock(urls, { ttl: ttlMs });
    return {
      lock: (name) => client.lock(name),
      version: require("../../node/package.json").version,
    };
  }
  const { PEERS } = await import("../peers/node/peers.mjs");
  const session = PEERS[subject].open(urls);
  // Some packages do not export their manifest.
  const manifest = new URL(`../peers/node/node_modules/${PACKAGES[subject] ?? subject}/package.json`, import.meta.url);
  return {
    lock: (name) => session.lock(name, ttlMs, null),
    version: JSON.parse(readFileSync(manifest, "utf8")).version,
  };
}

const { lock, version } = await open();
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
  async pairs({ names, seconds, count }) {
    const begunNs = nowNs();
    const cpu = cpuNs();
    const endNs = seconds === undefined ? Infinity : begunNs + seconds * 1e9;
    const most = seconds === undefined ? Math.floor(count / names.length) : Infinity;
    const turn = async (name) => {
      const samples = [];
      let now = nowNs();
      while (samples.length < most && (samples.length === 0 || now < endNs)) {
        const askedNs = now;
        await (await take(lock(name))).release();
        now = nowNs();
        samples.push(now - askedNs);
      }
      return samples;
    };
    const samples = (await Promise.all(names.map(turn))).flat();
    return tally(samples, nowNs() - begunNs, cpuNs() - cpu);
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

  async contend({ name, start_ns, end_ns, hold_ms }) {
    await sleep(Math.max((start_ns - nowNs()) / 1e6, 0));
    const cpu = cpuNs();
    const waits = [];
    let inTime = 0;
    let heldNs = 0;
    for (let askedNs = nowNs(); askedNs < end_ns; askedNs = nowNs()) {
      const handle = await take(lock(name));
      const sinceNs = nowNs();
      await sleep(hold_ms);
      waits.push(sinceNs - askedNs);
      if (sinceNs < end_ns) {
        inTime += 1;
        heldNs += nowNs() - sinceNs;
      }
      await handle.release();
    }
    return { ...tally(waits, end_ns - start_ns, cpuNs() - cpu), count: inTime, held_ns: heldNs };
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
