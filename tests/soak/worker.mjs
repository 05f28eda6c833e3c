// The Node worker of the soak; the Rust program and `worker.py` beside it do the same. It never judges.
// A line of standard input is a number of turns. The worker takes them and says in a line of JSON what is alive.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { setImmediate, setTimeout } from "node:timers/promises";
import { parseArgs } from "node:util";

// By its name, from inside of it: so its own `exports` say which file that is.
const require = createRequire(new URL("../../node/package.json", import.meta.url));
const { LockTimeout, LockUnavailable, Redlock } = require("redlock-rs");

// Longer than the servers may take to be empty, so that a key that nobody deletes is found.
const TTL = 60_000;
// Short, so that a node is given up while it is frozen.
const NODE_TIMEOUT = 200;
// How many want one name at once.
const WAITERS = 4;
// How many are denied at once.
const DENIED = 64;
// Long enough to be denied in the background too.
const MOMENT = 20;
// How many cancel at once: few, so that what is owed to a frozen node stays below the limit for that.
const TASKS = 8;
// How many names all tasks want.
const WANTED = 3;
// Latest moment of a cancellation.
const LONGEST = 20;

const { values: args, positionals: nodes } = parseArgs({
  allowPositionals: true,
  options: {
    face: { type: "string" },
    work: { type: "string" },
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

// Not where each turn opens its own: the clients of one process share connections.
const own = args.work === "clients" ? undefined : client();
let done = 0;

/** What is done again and again and must leave nothing behind. */
async function turns(count) {
  for (let turn = done; turn < done + count; turn += 1) {
    const redlock = own ?? client();
    const lock = redlock.lock(args.work === "names" ? `name-${turn}` : "name");
    await lock.using((signal) => signal.throwIfAborted());
    // The others are dropped.
    if (own === undefined && turn % 2 === 0) redlock.close();
  }
}

/** Wants names that others hold. */
async function denials(task, count) {
  for (let turn = done; turn < done + count; turn += 1) {
    await assert.rejects(own.lock(`name-${task}-${turn}`).acquire({ timeout: MOMENT }), (error) => {
      // On a busy machine nobody may answer within a moment.
      return error instanceof LockTimeout || error instanceof LockUnavailable;
    });
  }
}

const leaked = [];

/** A fault that must be found. */
async function leak(count) {
  if (args.leak === "keys") leaked.push(await client().lock(`leaked-${done}`).acquire());
  if (args.leak === "memory") for (let i = 0; i < count; i += 1) leaked.push(new Array(32).fill(i));
  if (args.leak === "descriptors") leaked.push(connect(new URL(nodes[0]).pathname));
}

/** Whether a call was cancelled at a random moment, before it had ended. */
async function cut(start) {
  const controller = new AbortController();
  const { signal } = controller;
  const call = start(signal).then(
    () => false,
    (error) => {
      if (error === signal.reason) return true;
      // A frozen node does no more.
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

/** Cancels until `count` acquires were cancelled, and returns with everything released, or about to be. */
async function cancel(count) {
  const counts = { cancelled: 0, won: 0, releases_cancelled: 0 };
  const cancelling = async (task) => {
    while (counts.cancelled < count) {
      const lock = own.lock(String(chance() ? upTo(WANTED) : WANTED + task));
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
    // As if nobody had released it.
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

/** Takes so many turns; what there is to be said. */
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
  // What a finalizer lets go is gone a turn after the first.
  globalThis.gc();
  await setImmediate();
  globalThis.gc();
  process.stdout.write(`${JSON.stringify({ ...answer, live: process.memoryUsage().heapUsed })}\n`);
}
