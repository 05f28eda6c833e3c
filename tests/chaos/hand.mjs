// The Node worker of chaos: one process whose hands acquire and release locks in every way. It never judges. `hand.py`
// does the same, and describes the orders and the records.

import { once } from "node:events";
import { openSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

// The worker imports the package by its name from inside of it, so its own `exports` choose the file.
const require = createRequire(new URL("../../node/package.json", import.meta.url));
const { Redlock, LockLost, RedlockError } = require("redlock-rs");

/** From these names, where others would have to wait too long. */
const POOLS = { long: "long", manual: "long", stale: "long", lease: "lease" };
const HOT = 0.2;
const IMPATIENT = 0.2;
const [SHORT_MS, LEASE_MS, PATIENCE_MS, CANCEL_MS, BUSY_MS] = [1_000, 12_000, 2_000, 30, 50];
/** How often a holder asks whether it still holds the lock. */
const LOOK_MS = 20;
/** The pause after a failed call, so that an outage does not cause a storm. */
const BREATH_MS = 50;
/** By how much more must remain than before, so that a renewal is worth a line. */
const RENEWED_NS = 50_000_000;

const { values: args } = parseArgs({
  options: Object.fromEntries(
    ["name", "face", "hands", "seed", "ttl", "journal", "store", "fault"].map((name) => [name, { type: "string" }]),
  ),
});
const ttlMs = Number(args.ttl) * 1000;
const redlock = new Redlock(undefined, { ttl: ttlMs, label: args.name });
const journal = openSync(args.journal, "a");

let names;
/** The possible ways of a hand, and how often it uses each. */
let ways;
let over = false;
/** The last fence of each name, for a planted fault. */
const fences = new Map();
let parked = 0;

/** The clock that all processes of the machine share. */
const nowNs = () => Number(process.hrtime.bigint());

const write = (line) => writeSync(journal, `${JSON.stringify(line)}\n`);
const say = (event, values = {}) => write({ event, ...values });

function record(client, name, kind, [invoke_ns, return_ns], values) {
  write({ client, name, kind, invoke_ns, return_ns, ok: true, fence: null, valid_until_ns: null, ...values });
}

/** Counts the hands that rest, and reports when all of them do. */
function park(change) {
  parked += change;
  if (parked === hands.length) say("resting");
}

/** Numbers in [0, 1) from a text: mulberry32. */
function dice(seed) {
  let state = 0;
  for (const letter of seed) state = (Math.imul(state, 31) + letter.codePointAt(0)) | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A connection to the store, for one hand. */
class Store {
  #client;
  #socket;

  constructor(client) {
    this.#client = client;
    this.#socket = connect(args.store);
    // Only requests wait for an answer.
    this.#socket.unref();
  }

  /** Returns the number, or nothing if the fence is too small. */
  async read(name, fence) {
    const [word, value] = (await this.#ask(`read ${name} ${fence} ${this.#client}`)).split(" ");
    return word === "ok" ? Number(value) : undefined;
  }

  /** Writes the number, unless the fence is too small. */
  async write(name, fence, value) {
    await this.#ask(`write ${name} ${fence} ${this.#client} ${value}`);
  }

  async #ask(line) {
    this.#socket.ref();
    this.#socket.write(`${line}\n`);
    const [answer] = await once(this.#socket, "data");
    this.#socket.unref();
    return answer.toString().trim();
  }
}

/** One hold of a lock, from its acquire to its release or loss. */
class Hold {
  lost = false;

  constructor(hand, name, lock, askedNs) {
    // The clock is read first: the recorded end of validity must not be later than the library means it.
    const atNs = nowNs();
    this.untilNs = until(atNs, lock);
    this.hand = hand;
    this.name = name;
    this.lock = lock;
    this.fence = args.fault === "old fence" ? (fences.get(name) ?? lock.fence) : lock.fence;
    fences.set(name, lock.fence);
    this.record("acquire", [askedNs, atNs], { valid_until_ns: this.untilNs });
    const { signal } = lock;
    if (signal.aborted) this.tellLost(signal.reason);
    else signal.addEventListener("abort", () => this.tellLost(signal.reason), { once: true });
  }

  /** Records the lock's own view of its state. */
  look() {
    try {
      this.lock.check();
    } catch (error) {
      this.failed("check", 0, error);
      return;
    }
    const atNs = nowNs();
    const untilNs = until(atNs, this.lock);
    if (untilNs > this.untilNs + RENEWED_NS) this.extended(atNs, untilNs);
  }

  extended(askedNs, untilNs) {
    this.untilNs = untilNs;
    this.record("extend", [askedNs, nowNs()], { valid_until_ns: untilNs });
  }

  /** Records that the holder knows of the loss, which may come by an event and by a check too. */
  tellLost(error) {
    if (this.lost) return;
    this.lost = true;
    const atNs = nowNs();
    this.record("lost", [atNs, atNs]);
    this.hand.complain("hold", error);
  }

  /** Records that the release begins. This ends the hold even if the process does not see the call return. */
  releasing() {
    const atNs = nowNs();
    say("releasing", { client: this.hand.client, at_ns: atNs });
    return atNs;
  }

  released(askedNs) {
    this.record("release", [askedNs, nowNs()]);
  }

  failed(call, askedNs, error) {
    if (!(error instanceof RedlockError)) throw error;
    // The hold ended when its release began, whatever the result.
    if (error instanceof LockLost && call !== "release") {
      this.tellLost(error);
      return;
    }
    this.record(call, [askedNs, nowNs()], { ok: false });
    this.hand.complain(call, error);
  }

  record(kind, call, values = {}) {
    record(this.hand.client, this.name, kind, call, { fence: this.fence, ...values });
  }
}

const until = (atNs, lock) => atNs + Math.floor(lock.remaining * 1e6);

/** A hand: one holder after the other. */
class Hand {
  proof;

  constructor(number) {
    this.client = `${args.name}/${number}`;
    this.random = dice(`${args.seed}/${number}`);
    this.store = new Store(this.client);
  }

  async run() {
    park(+1);
    while (!over) {
      if (names === undefined && this.proof === undefined) {
        await sleep(LOOK_MS);
        continue;
      }
      park(-1);
      if (this.proof !== undefined) await this.prove();
      while (names !== undefined) await this.turn(names);
      park(+1);
    }
  }

  /** Uses one lock in one way. */
  async turn(names) {
    const way = this.#way();
    const pool = names[POOLS[way] ?? (this.random() < HOT ? "hot" : "cool")];
    const patient = !(way in POOLS) && this.random() > IMPATIENT;
    const options = { ttl: ttlMs, timeout: patient ? undefined : PATIENCE_MS };
    if (way === "stale") Object.assign(options, { ttl: SHORT_MS, autoRenew: false });
    if (way === "manual") options.autoRenew = false;
    // A lease is not about what this process knows of restarts.
    if (way === "lease") Object.assign(options, { ttl: LEASE_MS, restartDelay: ttlMs });
    await this.use(pool[Math.floor(this.random() * pool.length)], way, options);
  }

  /** Acquires a lock that all workers want, in a time without trouble. */
  async prove() {
    const name = this.proof;
    this.proof = undefined;
    if (await this.use(name, "brief", { ttl: ttlMs })) say("served");
  }

  /** Acquires the lock, works under it and releases it. Returns whether it was acquired. */
  async use(name, way, options) {
    const lock = redlock.lock(name, options);
    const askedNs = nowNs();
    let hold;
    let leftNs = 0;
    say("asking", { client: this.client, name, at_ns: askedNs, ttl_s: options.ttl / 1000 });
    try {
      if (way === "block") {
        await lock.using(async () => {
          hold = new Hold(this, name, lock, askedNs);
          await this.#work(hold, way);
          leftNs = hold.releasing();
        });
        hold.released(leftNs);
      } else if (await this.#acquire(lock, way)) {
        hold = new Hold(this, name, lock, askedNs);
      }
    } catch (error) {
      if (hold) hold.failed(leftNs ? "release" : "body", leftNs, error);
      else if (error instanceof RedlockError) this.complain("acquire", error);
      else throw error;
    }
    if (!hold) {
      record(this.client, name, "acquire", [askedNs, nowNs()], { ok: false });
      await sleep(BREATH_MS);
      return false;
    }
    if (way !== "block") {
      await this.#work(hold, way);
      await this.#release(hold);
    }
    return true;
  }

  complain(call, { code, message, reason = null }) {
    say("error", { client: this.client, call, at_ns: nowNs(), code, message, reason });
  }

  async #acquire(lock, way) {
    if (way === "try") return lock.tryAcquire();
    const abort = new AbortController();
    if (way === "cancel") setTimeout(() => abort.abort(), CANCEL_MS * this.random());
    try {
      await lock.acquire({ signal: abort.signal });
      return true;
    } catch (error) {
      if (error === abort.signal.reason) return false;
      throw error;
    }
  }

  async #work(hold, way) {
    const value = await this.store.read(hold.name, hold.fence);
    if (way === "busy") await this.#watch(hold, BUSY_MS * this.random());
    if (way === "long") await this.#watch(hold, ttlMs * (1 + 1.5 * this.random()));
    if (way === "stale") await sleep(SHORT_MS * (0.8 + 0.6 * this.random()));
    if (way === "manual") {
      for (let i = 0; i < 3; i += 1) {
        await this.#watch(hold, ttlMs / 2);
        await this.#extend(hold);
      }
    }
    if (value !== undefined && (way === "stale" || !hold.lost)) {
      await this.store.write(hold.name, hold.fence, value + 1);
    }
  }

  async #watch(hold, ms) {
    const endNs = nowNs() + ms * 1e6;
    for (let left = ms; left > 0 && !hold.lost && names !== undefined; left = (endNs - nowNs()) / 1e6) {
      await sleep(Math.min(LOOK_MS, left));
      hold.look();
    }
  }

  async #extend(hold) {
    if (hold.lost || names === undefined) return;
    const askedNs = nowNs();
    try {
      await hold.lock.extend();
      hold.extended(askedNs, until(nowNs(), hold.lock));
    } catch (error) {
      hold.failed("extend", askedNs, error);
    }
  }

  async #release(hold) {
    const askedNs = hold.releasing();
    try {
      await hold.lock.release();
      hold.released(askedNs);
    } catch (error) {
      hold.failed("release", askedNs, error);
    }
  }

  #way() {
    let left = this.random() * Object.values(ways).reduce((sum, often) => sum + often, 0);
    for (const [way, often] of Object.entries(ways)) {
      left -= often;
      if (left < 0) return way;
    }
    throw new Error("they go up to their sum");
  }
}

const hands = Array.from({ length: Number(args.hands) }, (_, number) => new Hand(number));
createInterface({ input: process.stdin })
  .on("line", (line) => {
    const order = JSON.parse(line);
    if (order.order === "epoch") ({ names, ways } = order);
    if (order.order === "prove") hands[0].proof = order.name;
    if (order.order === "rest") {
      names = undefined;
      park(0);
    }
  })
  .on("close", () => {
    names = undefined;
    over = true;
  });
await Promise.all(hands.map((hand) => hand.run()));
