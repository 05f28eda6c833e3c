// The Node worker of the soak; the Rust program and `worker.py` beside it do the same. It never judges.
// A line of standard input is a number of turns. The worker takes them and reports its live counts in a line of JSON.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { setImmediate, setTimeout } from "node:timers/promises";
import { parseArgs } from "node:util";

// The worker imports the package by its name from inside of it, so its own `exports` choose the file.
const require = createRequire(new URL("../../node/package.json", import.meta.url));
const { LockTimeout, LockUnavailable, Redlock } = require("redlock-rs");

// Longer than the servers may take to be empty, so that a key that is not deleted is found.
const TTL = 60_000;
// Short, so that calls give up a node while it is frozen.
const NODE_TIMEOUT = 200;
// How many tasks compete for one name.
const WAITERS = 4;
// How many permits a semaphore has.
const PERMITS = 2;
// Of so many turns with a shared lock, one is that of a writer.
const WRITES = 4;
// How many calls are denied at once.
const DENIED = 64;
// Long enough for a call to be denied in the background too.
const MOMENT = 20;
// How many tasks cancel at once: few, so that pending releases of a frozen node stay below their limit.
const TASKS = 8;
// How many names the tasks compete for.
const WANTED = 3;
// The latest moment of a cancellation.
const LONGEST = 20;

const { values: args, positionals: nodes } = parseArgs({
  allowPositionals: true,
  options: {
    face: { type: "string" },
    work: { type: "string" },
    shape: { type: "string", default: "one" },
    seed: { type: "string", default: "0" },
    leak: { type: "string" },
  },
});

let state = Number(args.seed);

/** A number in [0, 1) from the seed: mulberry32. */
function random() {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
}

const upTo = (limit) => Math.floor(limit * random());
const chance = () => random() < 0.5;

function client() {
  return new Redlock(nodes, { ttl: TTL, nodeTimeout: NODE_TIMEOUT });
}

// Not made if each turn opens its own client: the clients of one process share connections.
const own = args.work === "clients" ? undefined : client();
let done = 0;

/** A lock of this shape. The names of a set stand around its name, so that it is neither the first nor the last. */
function made(redlock, name, turn) {
  if (args.shape === "set") return redlock.lockAll([`a-${name}`, name, `z-${name}`]);
  if (args.shape === "slot") return redlock.semaphore(name, PERMITS);
  if (args.shape === "shared") return redlock.lock(name, { shared: turn % WRITES > 0 });
  return redlock.lock(name);
}

/** Repeated actions that must leave nothing behind. */
async function turns(count) {
  for (let turn = done; turn < done + count; turn += 1) {
    const redlock = own ?? client();
    const name = args.work === "names" ? `name-${turn}` : "name";
    if (args.shape === "term") {
      assert.ok(await redlock.election(name).run((_signal, { fence }) => fence));
      continue;
    }
    const lock = made(redlock, name, turn);
    await lock.using((signal) => signal.throwIfAborted());
    // Other clients are dropped.
    if (own === undefined && turn % 2 === 0) redlock.close();
  }
}

/** Tries to acquire names that others hold. */
async function denials(task, count) {
  for (let turn = done; turn < done + count; turn += 1) {
    await assert.rejects(made(own, `name-${task}-${turn}`, turn).acquire({ timeout: MOMENT }), (error) => {
      // A busy machine may not answer within a moment.
      return error instanceof LockTimeout || error instanceof LockUnavailable;
    });
  }
}

const leaked = [];

/** A planted fault, which must be found. */
async function leak(count) {
  if (args.leak === "keys") leaked.push(await client().lock(`leaked-${done}`).acquire());
  if (args.leak === "memory") for (let i = 0; i < count; i += 1) leaked.push(new Array(32).fill(i));
  if (args.leak === "descriptors") leaked.push(connect(new URL(nodes[0]).pathname));
}

/** A lock of names that others want as well, or of one's own. */
function wanted(task) {
  if (args.shape === "slot") return own.semaphore("pool", PERMITS + upTo(2));
  const names = Array.from({ length: WANTED }, (_, name) => String(name));
  if (args.shape === "shared") return own.lock(names[upTo(WANTED)], { shared: upTo(WRITES) > 0 });
  if (args.shape === "set") {
    names.push(String(WANTED + task));
    const [first] = names.splice(upTo(names.length), 1);
    return own.lockAll([first, names[upTo(names.length)]]);
  }
  return own.lock(chance() ? names[upTo(WANTED)] : String(WANTED + task));
}

/** An election that is stopped at a random moment, in a campaign or in a term. */
async function campaign(counts) {
  const election = own.election(String(upTo(WANTED)));
  const term = LONGEST * random();
  let led = 0;
  let resigned = 0;
  const run = election.run(async (signal) => {
    led += 1;
    await setTimeout(term, undefined, { signal });
    resigned += 1;
    return true;
  });
  await moment();
  election.stop();
  if ((await run) !== true) counts.cancelled += 1;
  counts.won += led;
  if (led > resigned) counts.releases_cancelled += 1;
}

/** Whether a call was cancelled at a random moment, before it had ended. */
async function cut(start) {
  const controller = new AbortController();
  const { signal } = controller;
  const call = start(signal).then(
    () => false,
    (error) => {
      if (error === signal.reason) return true;
      // A frozen node does nothing more.
      assert.ok(error instanceof LockUnavailable, error);
      return false;
    },
  );
  await moment();
  controller.abort();
  return call;
}

/** Some turns of the microtasks or of the loop, or some time. */
async function moment() {
  const kind = upTo(3);
  if (kind === 2) return setTimeout(LONGEST * random());
  for (let left = upTo(10); left > 0; left -= 1) await (kind === 0 ? null : setImmediate());
}

/** Cancels until `count` acquires were cancelled, and returns when all releases have begun. */
async function cancel(count) {
  const counts = { cancelled: 0, won: 0, releases_cancelled: 0 };
  const cancelling = async (task) => {
    while (counts.cancelled < count) {
      if (args.shape === "term") {
        await campaign(counts);
        continue;
      }
      const lock = wanted(task);
      const cancelled = await cut((signal) => lock.acquire({ signal }));
      assert.equal(cancelled && lock.held, false, "a cancelled acquire holds the lock");
      if (cancelled) counts.cancelled += 1;
      if (!lock.held) continue;
      counts.won += 1;
      if (chance()) await setTimeout(LONGEST * random());
      await release(lock, counts);
    }
  };
  await Promise.all(Array.from({ length: TASKS }, (_, task) => cancelling(task)));
  return counts;
}

/** A release cannot be cancelled here, but left alone. */
async function release(lock, counts) {
  if (args.leak === "keys") {
    // This simulates a release that was forgotten.
    leaked.push(lock);
    counts.releases_cancelled += 1;
    return;
  }
  const unavailable = (error) => assert.ok(error instanceof LockUnavailable, error);
  const first = lock.release().catch(unavailable);
  assert.equal(lock.held, false, "a released lock is held");
  if (chance()) {
    await first;
    return;
  }
  counts.releases_cancelled += 1;
  await moment();
  if (chance()) await lock.release().catch(unavailable);
}

/** Takes so many turns; returns what to report. */
async function perform(count) {
  if (args.work === "cancel") return cancel(count);
  const tasks = { wait: WAITERS, denied: DENIED }[args.work] ?? 1;
  const work = (task) => (args.work === "denied" ? denials(task, count / tasks) : turns(count / tasks));
  await Promise.all(Array.from({ length: tasks }, (_, task) => work(task)));
  done += count;
  if (count > 0) await leak(count);
  return {};
}

for await (const line of createInterface({ input: process.stdin })) {
  const answer = await perform(Number(line));
  // Objects that a finalizer releases are gone a turn later.
  globalThis.gc();
  await setImmediate();
  globalThis.gc();
  process.stdout.write(`${JSON.stringify({ ...answer, live: process.memoryUsage().heapUsed })}\n`);
}
