// The Node worker of chaos: one process whose hands acquire and release locks in every way. It never judges. `hand.py`
// does the same, and describes the orders and the records.

import { subscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { openSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { formatWithOptions, parseArgs } from "node:util";
import { draw, PATIENCE_MS, plain, SHORT_MS } from "./asked.mjs";

// The worker imports the package by its name from inside of it, so its own `exports` choose the file.
const require = createRequire(new URL("../../node/package.json", import.meta.url));
const { Redlock, LockLost, RedlockError, stats } = require("redlock-rs");

const [CANCEL_MS, BUSY_MS] = [30, 50];
/** For how long the nodes keep a lock that is detached, what has to be left of it, and how long its hand waits. */
const [GIVEN_MS, TAKEN_MS, OFFERED_MS] = [3_000, 1_000, 500];
/** How often a hand looks whether one is offered. */
const TAKES = 0.1;
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

/** The names and how they are used, unless the hands should rest. */
let epoch;
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

/** A line of a log. */
const shown = (message, fields) =>
  formatWithOptions({ breakLength: Number.POSITIVE_INFINITY }, "%s %O", message, fields);

/** Records what the library logs in this process. */
for (const topic of ["node", "lock", "process"]) {
  const logger = `redlock:${topic}`;
  subscribe(logger, ({ code, level, message, fields }) => {
    if (level !== "debug") say("heard", { at_ns: nowNs(), logger, code, level, text: shown(message, fields) });
  });
}

/** The metrics of this process: the labels and the number of each point. That of a histogram is its count. */
function totals() {
  const numbers = ({ labels, value, histogram }) => [labels, histogram ? histogram.count : value];
  return Object.fromEntries(Object.entries(stats()).map(([name, { points }]) => [name, points.map(numbers)]));
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

  /** Offers a detached lock to hands of other languages. */
  async give(untilNs, shape, text) {
    await this.#ask(`give ${this.#client} node ${untilNs} ${shape} ${text}`);
  }

  /** Returns what became of the offer. */
  given() {
    return this.#ask(`given ${this.#client}`);
  }

  /** Ends the offer, unless it is taken. */
  async withdraw() {
    return (await this.#ask(`withdraw ${this.#client}`)) === "withdrawn";
  }

  /** Returns what another language offers, if it does. */
  async take() {
    const [giver, untilNs, shape, text] = (await this.#ask("take node")).split(" ");
    return text && { giver, untilNs: Number(untilNs), shape, text };
  }

  /** Tells the giver what became of its lock. */
  async finished(giver, state) {
    await this.#ask(`done ${giver} ${state}`);
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

  constructor(hand, asked, lock, askedNs) {
    // The clock is read first: the recorded end of validity must not be later than the library means it.
    const atNs = nowNs();
    this.untilNs = until(atNs, lock);
    this.hand = hand;
    this.asked = asked;
    this.lock = lock;
    this.slot = lock.slot;
    const name = `${asked.name}#${this.slot}`;
    this.fence = args.fault === "old fence" ? (fences.get(name) ?? lock.fence) : lock.fence;
    fences.set(name, lock.fence);
    this.record("acquire", [askedNs, atNs], { valid_until_ns: this.untilNs });
    const { signal } = lock;
    if (signal.aborted) this.tellLost(signal.reason);
    else signal.addEventListener("abort", () => this.tellLost(signal.reason), { once: true });
  }

  /** What the store has under this lock. */
  get stored() {
    const { name, names } = this.asked;
    return this.slot === null ? names : [`${name}#${this.slot}`];
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
    this.record("lost", [atNs, atNs], { reason: error.reason });
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

  /** Records a release of which only an election knows that it failed. */
  gaveUp(askedNs) {
    this.record("release", [askedNs, nowNs()], { ok: false });
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
    const slot = this.slot === null ? {} : { slot: this.slot };
    record(this.hand.client, this.asked.name, kind, call, {
      fence: this.fence,
      ...this.asked.told,
      ...slot,
      ...values,
    });
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
      if (epoch === undefined && this.proof === undefined) {
        await sleep(LOOK_MS);
        continue;
      }
      park(-1);
      if (this.proof !== undefined) await this.prove();
      while (epoch !== undefined) await this.turn(epoch);
      park(+1);
    }
  }

  /** Uses one lock in one way. */
  async turn(present) {
    const offered = present.ways.hand && this.random() < TAKES && (await this.store.take());
    if (offered) {
      const { giver, untilNs, shape, text } = offered;
      await this.store.finished(giver, (await this.#attach(text, untilNs, shape)) ? "over" : "gone");
      return;
    }
    const asked = draw(this.random, present, ttlMs);
    if (asked.shape === "term") await this.campaign(asked);
    else await this.use(asked);
  }

  /** Acquires a lock that all workers want, in a time without trouble. */
  async prove() {
    const name = this.proof;
    this.proof = undefined;
    if (await this.use(plain(name, { ttl: ttlMs }))) say("served");
  }

  /** Acquires the lock, works under it and releases it. Returns whether it was acquired. */
  async use(asked) {
    const lock = asked.lock(redlock);
    const askedNs = this.#ask(asked);
    let hold;
    let leftNs = 0;
    try {
      if (asked.way === "block") {
        await lock.using(async () => {
          hold = new Hold(this, asked, lock, askedNs);
          await this.#work(hold);
          leftNs = hold.releasing();
        });
        hold.released(leftNs);
      } else if (await this.#acquire(lock, asked.way)) {
        hold = new Hold(this, asked, lock, askedNs);
      }
    } catch (error) {
      if (hold) hold.failed(leftNs ? "release" : "body", leftNs, error);
      else if (error instanceof RedlockError) this.complain("acquire", error);
      else throw error;
    }
    if (!hold) {
      await this.#denied(asked, askedNs);
      return false;
    }
    if (asked.way !== "block") {
      await this.#work(hold);
      if (asked.way !== "hand" || !(await this.#handOver(hold))) await this.#release(hold);
    }
    return true;
  }

  /** Runs in an election, until its term is over or until it is stopped. */
  async campaign(asked) {
    const alone = args.fault === "own election" ? args.name : "";
    const election = redlock.election(asked.name + alone, asked.options);
    let askedNs = this.#ask(asked);
    /** The term, unless it campaigns. */
    let term;
    let leftNs = 0;
    const stop = setTimeout(() => election.stop(), PATIENCE_MS * this.random());
    try {
      await election.run(async (signal, lock) => {
        // The loss of another one came right behind its end.
        if (term) {
          term.gaveUp(leftNs);
          say("resigned", { client: this.client });
          askedNs = this.#ask(asked, leftNs);
        }
        const hold = new Hold(this, asked, lock, askedNs);
        term = hold;
        await this.#work(hold, signal);
        hold.look();
        leftNs = hold.releasing();
        if (!hold.lost) return;
        hold.released(leftNs);
        askedNs = this.#ask(asked, leftNs);
        term = undefined;
      });
    } catch (error) {
      if (!(error instanceof RedlockError)) throw error;
      this.complain("acquire", error);
    } finally {
      clearTimeout(stop);
    }
    if (term) {
      term.released(leftNs);
      say("resigned", { client: this.client });
    } else {
      await this.#denied(asked, askedNs);
      say("stopped", { client: this.client });
    }
  }

  /** Records that the hand asks for a lock, now or since then; returns when. */
  #ask(asked, atNs = nowNs()) {
    say("asking", { client: this.client, at_ns: atNs, ...asked.asking });
    return atNs;
  }

  /** Records that the lock was not acquired, and lets others go on. */
  async #denied(asked, askedNs) {
    record(this.client, asked.name, "acquire", [askedNs, nowNs()], { ok: false, ...asked.told });
    await sleep(BREATH_MS);
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

  /** What is done under a lock, until its holder is told that this is over. */
  async #work(hold, signal = undefined) {
    const { way, marginMs } = hold.asked;
    const values = new Map();
    for (const name of hold.stored) values.set(name, await this.store.read(name, hold.fence));
    if (way === "busy") await this.#watch(hold, BUSY_MS * this.random(), signal);
    if (way === "long") await this.#watch(hold, ttlMs * (1 + 1.5 * this.random()), signal);
    if (way === "stale") await sleep(SHORT_MS * (0.8 + 0.6 * this.random()));
    if (way === "manual") {
      for (let i = 0; i < 3; i += 1) {
        await this.#watch(hold, ttlMs / 2);
        await this.#extend(hold);
      }
    }
    for (const [name, value] of values) {
      if (value === undefined || (hold.lost && way !== "stale")) continue;
      if (hold.asked.shape === "shared") await this.store.read(name, hold.fence);
      else await this.store.write(name, hold.fence, value + 1);
    }
    // Others have to wait for its margin, unless it says that it has stopped.
    if (hold.lost) await sleep(marginMs * this.random());
  }

  async #watch(hold, ms, signal = undefined) {
    const endNs = nowNs() + ms * 1e6;
    const isOver = () => hold.lost || epoch === undefined || signal?.aborted;
    for (let left = ms; left > 0 && !isOver(); left = (endNs - nowNs()) / 1e6) {
      await sleep(Math.min(LOOK_MS, left));
      hold.look();
    }
  }

  async #extend(hold) {
    if (hold.lost || epoch === undefined) return;
    const askedNs = nowNs();
    try {
      await hold.lock.extend();
      hold.extended(askedNs, until(nowNs(), hold.lock));
    } catch (error) {
      hold.failed("extend", askedNs, error);
    }
  }

  /** Detaches the lock, and waits until another hand has released it. Returns whether it was detached. */
  async #handOver(hold) {
    if (hold.lost) return false;
    const { shape, marginMs } = hold.asked;
    const askedNs = nowNs();
    let text;
    try {
      text = await hold.lock.detach(GIVEN_MS);
    } catch (error) {
      hold.failed("extend", askedNs, error);
      return false;
    }
    const untilNs = askedNs + Math.floor((GIVEN_MS * 0.99 - 2 - marginMs) * 1e6);
    hold.extended(askedNs, untilNs);
    // Also if this process ends, the hold lasts until then.
    say("releasing", { client: this.client, at_ns: untilNs });
    await this.store.give(untilNs, shape, text);
    const backNs = nowNs() + OFFERED_MS * 1e6;
    for (;;) {
      const state = await this.store.given();
      if (state === "over") return true;
      const isLate = state === "open" && (nowNs() > backNs || epoch === undefined);
      if (isLate && (await this.store.withdraw()) && (await this.#attach(text, untilNs, shape))) return true;
      if (isLate && (await this.store.given()) === "taken") continue;
      if (state === "gone" || isLate) {
        hold.gaveUp(nowNs());
        return true;
      }
      await sleep(LOOK_MS);
    }
  }

  /** Goes on with the hold of another hand, and releases it. Returns whether it could. */
  async #attach(text, untilNs, shape) {
    let askedNs = nowNs();
    let lock;
    try {
      if (askedNs + TAKEN_MS * 1e6 > untilNs) return false;
      lock = await redlock.attach(text, { timeout: TAKEN_MS / 2 });
    } catch (error) {
      if (!(error instanceof RedlockError)) throw error;
      say("attached", { acquired: 0, lost: 0, code: error.code });
      return false;
    }
    const atNs = nowNs();
    const validNs = until(atNs, lock);
    const { fence, slot } = lock;
    const names = [...lock.names].sort();
    const of = { fence, ...(names.length > 1 && { names }), ...(shape === "shared" && { shared: true }) };
    if (slot !== null) of.slot = slot;
    const write = (kind, call, values) => record(this.client, names.join(", "), kind, call, { ...of, ...values });
    write("extend", [askedNs, atNs], { valid_until_ns: validNs, attached: true });
    const values = new Map();
    for (const name of slot === null ? names : [`${names[0]}#${slot}`]) {
      values.set(name, await this.store.read(name, fence));
    }
    await sleep(BUSY_MS * this.random());
    for (const [name, value] of values) {
      if (value !== undefined && shape !== "shared" && lock.held) await this.store.write(name, fence, value + 1);
    }
    askedNs = nowNs();
    let code = null;
    try {
      await lock.release();
      write("release", [askedNs, nowNs()]);
    } catch (error) {
      if (!(error instanceof RedlockError)) throw error;
      // It has not relied on the lock for longer, although it may have been stopped.
      const overNs = Math.min(askedNs, Math.max(validNs, untilNs));
      write("release", [overNs, overNs], { ok: false });
      ({ code } = error);
    }
    say("attached", { acquired: 1, lost: Number(code === "lost"), code });
    return true;
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
}

const hands = Array.from({ length: Number(args.hands) }, (_, number) => new Hand(number));
createInterface({ input: process.stdin })
  .on("line", (line) => {
    const order = JSON.parse(line);
    if (order.order === "epoch") epoch = order;
    if (order.order === "prove") hands[0].proof = order.name;
    if (order.order === "rest") {
      epoch = undefined;
      park(0);
    }
  })
  .on("close", () => {
    epoch = undefined;
    over = true;
  });
await Promise.all(hands.map((hand) => hand.run()));
say("stats", { process: args.name, metrics: totals() });
