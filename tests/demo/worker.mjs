// The Node worker of the demo: one process that fights for the lock.
//
// `demo.py` starts it beside its siblings in Rust (`src/`) and Python (`worker.py`), which do the same. The lock
// protects a file with a counter that each holder reads and writes back increased, so that two holders at once lose an
// update.

import { readFileSync, writeFileSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

// The package in this repository, found through its own exports.
const { Redlock, LockLost, RedlockError } = createRequire(import.meta.url)("../../node");

/** How often a holder asks whether it still holds the lock, in milliseconds. */
const LOOK_MS = 20;
/** The pause after a failed call. */
const BREATH_MS = 100;
/** By how much more must remain than before, so that a renewal is worth a line. */
const RENEWED_MS = 100;

/** The clock that all processes of the machine share. */
const nowNs = () => Number(process.hrtime.bigint());

/** Writes one line, all at once: a pipe takes a line of this length whole. */
function say(event, values = {}) {
  try {
    writeSync(1, `${JSON.stringify({ event, ...values })}\n`);
  } catch {
    // The reader has gone, so there is nothing left to fight for.
    process.exit(1);
  }
}

/** Reports a failed call; an error that is not of the library ends the worker. */
function failed(call, askedNs, fence, error) {
  if (!(error instanceof RedlockError)) throw error;
  const { code, message } = error;
  say("error", { call, asked_ns: askedNs, at_ns: nowNs(), fence, code, message });
}

/** The first line of input starts the worker, `keep N` makes its next hold N ms long, the end of input stops it. */
class Orders {
  stopped = false;
  #keepMs = 0;

  constructor() {
    const input = createInterface({ input: process.stdin });
    this.started = new Promise((resolve) => {
      input.on("line", (line) => {
        if (line.startsWith("keep ")) this.#keepMs = Number(line.slice("keep ".length));
        resolve();
      });
      input.on("close", () => {
        this.stopped = true;
        resolve();
      });
    });
  }

  /** How long to keep the hold that begins now, if it was ordered. */
  takeKeepMs() {
    const keepMs = this.#keepMs;
    this.#keepMs = 0;
    return keepMs || undefined;
  }
}

/** One hold of the lock, from its acquire to its release or loss. */
class Hold {
  #lost = false;

  constructor(lock, file, orders) {
    // The clock is read first: the recorded end of validity must not be later than the library means it.
    const atNs = nowNs();
    const remainingMs = lock.remaining;
    this.lock = lock;
    this.file = file;
    this.orders = orders;
    this.fence = lock.fence;
    const keepMs = orders.takeKeepMs();
    this.kept = keepMs !== undefined;
    const remaining_ns = Math.floor(remainingMs * 1e6);
    say("acquired", { at_ns: atNs, fence: this.fence, remaining_ns, kept: this.kept });
    // 5 to 100 ms, different every time, so that the workers do not fall into step.
    this.validUntilMs = atNs / 1e6 + remainingMs;
    this.endMs = atNs / 1e6 + (keepMs ?? 5 + (this.fence % 96));
    this.count = this.#read();
  }

  /** How long to sleep before the next look at the lock; `undefined` at the end. */
  nap() {
    const left = this.endMs - nowNs() / 1e6;
    if (this.#lost || left <= 0 || (this.kept && this.orders.stopped)) return undefined;
    return Math.min(left, LOOK_MS);
  }

  /** Records the lock's own view of its state. */
  look() {
    try {
      this.lock.check();
    } catch (error) {
      if (!(error instanceof LockLost)) throw error;
      this.lost(error);
      return;
    }
    const atNs = nowNs();
    const remainingMs = this.lock.remaining;
    if (atNs / 1e6 + remainingMs > this.validUntilMs + RENEWED_MS) {
      this.validUntilMs = atNs / 1e6 + remainingMs;
      say("renewed", { at_ns: atNs, fence: this.fence, remaining_ns: Math.floor(remainingMs * 1e6) });
    }
  }

  /** Writes the file, unless the lock is lost; returns whether there is something to release. */
  finish() {
    if (this.#lost) return false;
    if (this.count !== undefined) {
      writeFileSync(this.file, `${this.count + 1} ${this.fence}\n`);
      say("counted", { fence: this.fence });
    }
    return true;
  }

  async release() {
    const askedNs = nowNs();
    try {
      await this.lock.release();
      say("released", { asked_ns: askedNs, at_ns: nowNs(), fence: this.fence });
    } catch (error) {
      if (error instanceof LockLost) this.lost(error);
      else failed("release", askedNs, this.fence, error);
    }
  }

  lost(error) {
    this.#lost = true;
    say("lost", { at_ns: nowNs(), fence: this.fence, reason: error.reason });
  }

  /** How long to wait before the next round: 20 to 120 ms, which lets the others come first. */
  pause() {
    return 20 + (Math.floor(this.fence / 96) % 101);
  }

  #read() {
    const text = readFileSync(this.file, "utf8");
    const words = /^(\d+) (\d+)\n$/.exec(text);
    if (!words) {
      // Another worker is writing the file at this moment.
      say("damage", { message: `found the file half written: ${JSON.stringify(text)}` });
      return undefined;
    }
    const [count, fence] = [Number(words[1]), Number(words[2])];
    if (fence >= this.fence) {
      say("damage", { message: `holds fence ${this.fence}, but the file has seen ${fence} already` });
      return undefined;
    }
    return count;
  }
}

const { values: given, positionals: nodes } = parseArgs({
  allowPositionals: true,
  options: {
    face: { type: "string" },
    name: { type: "string" },
    ttl: { type: "string" },
    timeout: { type: "string" },
    file: { type: "string" },
  },
});
const redlock = new Redlock(nodes, { ttl: Number(given.ttl), timeout: Number(given.timeout) });
say("ready");
const orders = new Orders();
await orders.started;
while (!orders.stopped) {
  const askedNs = nowNs();
  say("asking", { at_ns: askedNs });
  const lock = redlock.lock(given.name);
  try {
    await lock.acquire();
  } catch (error) {
    failed("acquire", askedNs, undefined, error);
    await sleep(BREATH_MS);
    continue;
  }
  const hold = new Hold(lock, given.file, orders);
  for (let nap = hold.nap(); nap !== undefined; nap = hold.nap()) {
    await sleep(nap);
    hold.look();
  }
  if (hold.finish()) await hold.release();
  await sleep(hold.pause());
}
