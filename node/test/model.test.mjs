// Random operations, compared with a model of the possible results. A run is always the same. For a longer one, with
// other operations each time: `node test/model.test.mjs --runs 2000`.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { parseArgs } from "node:util";
import fc from "fast-check";
import { LockTimeout, Redlock } from "redlock-rs";
import { BRIEF, could, distinct, GRAIN, outcomes, PATIENT, passed, settled, start, THEIRS } from "./model.mjs";
import { cluster, fresh, until } from "./servers.mjs";

const { runs } = parseArgs({ options: { runs: { type: "string" } }, strict: false }).values;
/** The ttl of a lock that needs no renewal here, and of one that is left to expire. */
const [LONG, SHORT] = [600_000, 400];
/** The numbers of the locks; the last two are of a client that may be closed. */
const TTLS = [LONG, LONG, LONG, SHORT];
const SECOND = [2, 3];
/** How long others may have the key. */
const MOMENT = 100;
/** How long a call waits that makes connections. */
const WARMING = 1_000;
const LIMIT = 5_000;

let servers;
let keeper;

before(async () => {
  servers = await cluster(3);
  // This makes and keeps every connection that will be used. Without it a lock may be acquired without some node.
  keeper = [1, 3].map((count) => new Redlock(urls(count)));
  await Promise.all(servers.map((server) => server.ask("SET", "warm", THEIRS)));
  const warm = (client) => assert.rejects(client.lock("warm").acquire({ timeout: WARMING }), LockTimeout);
  await Promise.all(keeper.map(warm));
});
after(() => Promise.all(servers.map((server) => server.stop())));

const urls = (count) => servers.slice(0, count).map(({ url }) => url);

/** The result of a call, in a word. */
async function said(call) {
  try {
    const value = await call();
    return value === true ? "acquired" : value === false ? "timeout" : "done";
  } catch (error) {
    return error.code === "lost" ? `lost: ${error.reason}` : (error.code ?? error.message);
  }
}

/** Four locks of one name, on one node or on three, and other users of the same key. */
class Machine {
  constructor(count) {
    this.count = count;
    this.name = fresh("model");
    this.clients = [new Redlock(urls(count)), new Redlock(urls(count))];
    this.closed = false;
    this.fences = TTLS.map(() => 0);
    this.signals = TTLS.map(() => undefined);
    this.locks = [];
    this.worlds = [start(count, TTLS.length)];
    for (const number of TTLS.keys()) this.#make(number);
  }

  #make(number) {
    const [ttl, client] = [TTLS[number], this.clients[Number(SECOND.includes(number))]];
    const nodeTimeout = Math.min(5_000, 0.9 * ttl);
    const more = { timeout: 0, label: `${number}`, autoRenew: ttl === LONG, nodeTimeout };
    this.locks[number] = client.lock(this.name, { ttl, ...more });
    this.signals[number] = undefined;
  }

  /** Makes a call, and keeps the worlds in which its result is possible. */
  async judge(call, predict) {
    const begun = performance.now();
    const result = await call();
    const times = [begun - GRAIN, performance.now() + GRAIN];
    const expected = this.worlds.flatMap((world) => passed(world, times)).flatMap((world) => predict(world, times));
    this.worlds = distinct(expected.filter(([expected]) => expected === result).map(([, world]) => world));
    const words = [...new Set(expected.map(([expected]) => expected))];
    assert.notEqual(this.worlds.length, 0, `${result}, but expected one of ${words.join(" | ")}`);
    return result;
  }

  #given(number, times, patience) {
    return { ttl: TTLS[number], times, closed: this.closed && SECOND.includes(number), patience };
  }

  #acquired(number) {
    const { fence, signal } = this.locks[number];
    assert.ok(fence > Math.max(...this.fences), "fences rise");
    assert.notEqual(signal, this.signals[number], "every hold has a signal of its own");
    this.fences[number] = fence;
    this.signals[number] = signal;
  }

  #whose(number) {
    return (
      number ??
      Math.max(
        0,
        this.locks.findIndex((lock) => lock.held),
      )
    );
  }

  #command(nodes, verb, ...words) {
    const mine = servers.slice(0, this.count).filter((_, node) => nodes.includes(node));
    return Promise.all(mine.map((server) => server.ask(verb, this.name, ...words)));
  }

  /** The servers, signals and objects agree with some world; the first two at once or soon. */
  async agrees() {
    await until(async () => {
      const begun = performance.now();
      const keys = await this.#keys();
      const aborted = this.signals.map((signal) => signal?.aborted ?? false);
      const times = [begun - GRAIN, performance.now() + GRAIN];
      const worlds = this.worlds.flatMap((world) => passed(world, times)).map(settled);
      const told = ({ locks }, number) => {
        const { state } = locks[number];
        return state === "held" ? !aborted[number] : aborted[number] || !state.startsWith("lost");
      };
      const seen = JSON.stringify(keys);
      const same = worlds.filter(
        (world) => JSON.stringify(world.keys) === seen && TTLS.every((_, n) => told(world, n)),
      );
      if (same.length > 0) this.worlds = distinct(same);
      else this.seen = `${seen} ${aborted}, but expected one of ${JSON.stringify(worlds)}`;
      return same.length > 0;
    }, LIMIT).catch((error) => assert.fail(`${error.message}: ${this.seen}`));
    for (const [number, lock] of this.locks.entries()) {
      const ask = async () => {
        const [before, remaining] = [lock.held, lock.remaining];
        const result = await said(() => lock.check());
        const steps = [before, remaining > 0, result === "done"];
        assert.deepEqual(steps, steps.toSorted().reverse(), "only ever from held to not held");
        assert.ok(remaining < 2 * LONG);
        const fence = result === "not_held" ? "not_held" : this.fences[number];
        assert.equal(await said(() => assert.equal(lock.fence, fence)), result === "not_held" ? "not_held" : "done");
        return result;
      };
      await this.judge(ask, (world) => outcomes.check(world, number));
    }
  }

  async acquire(number, how) {
    const lock = this.locks[number];
    const call = { acquire: () => lock.acquire().then(() => true), tryAcquire: () => lock.tryAcquire() }[how];
    const patience = how === "acquire a little" ? 100 : 0;
    const wait = () => lock.acquire({ timeout: patience }).then(() => true);
    await this.#acquire(number, call ?? wait, patience);
  }

  async #acquire(number, call, patience) {
    const predict = (world, times) => outcomes.acquire(world, number, this.#given(number, times, patience));
    if ((await this.judge(() => said(call), predict)) === "acquired") this.#acquired(number);
  }

  /** Waits until a brief key of others is gone. */
  async outwait(number) {
    const soon = (world) => world.keys.includes(BRIEF) && could(world, number, [null, BRIEF]);
    if (!this.worlds.every(soon)) return;
    const acquire = async () => {
      const result = await said(() => this.locks[number].acquire({ timeout: LIMIT }).then(() => true));
      return `${result} ${await this.#regain(result, number, BRIEF)}`;
    };
    await this.judge(acquire, (world, times) => outcomes.outwait(world, number, this.#given(number, times)));
  }

  /** Extends, so that it also has the nodes where another's key was gone too late. */
  async #regain(result, number, other) {
    if (result !== "acquired") return "";
    this.#acquired(number);
    await until(async () => !(await this.#keys()).includes(other), LIMIT);
    return said(() => this.locks[number].extend());
  }

  async #keys() {
    const owners = { [THEIRS]: THEIRS, [BRIEF]: BRIEF };
    const values = await this.#command([0, 1, 2], "GET");
    return values.map((value) => (value === null ? null : (owners[value] ?? Number(value.split(":")[2]))));
  }

  async release(chosen) {
    const number = this.#whose(chosen);
    await this.judge(
      () => said(() => this.locks[number].release()),
      (world) => outcomes.release(world, number),
    );
  }

  async dispose(chosen) {
    const number = this.#whose(chosen);
    await this.judge(
      () => said(() => this.locks[number][Symbol.asyncDispose]()),
      (world) => outcomes.dispose(world, number),
    );
  }

  async extend(chosen, share) {
    const number = this.#whose(chosen);
    const ttl = share === null ? undefined : share * TTLS[number];
    const key = `redlock:fence:{${this.name}}`;
    const known = await Promise.all(servers.slice(0, this.count).map((server) => server.ask("GET", key)));
    const later = [...known.keys()].filter((node) => Number(known[node]) > this.fences[number]);
    await this.judge(
      () => said(() => this.locks[number].extend(ttl)),
      (world, times) => outcomes.extend(world, number, { ttl, times, later }),
    );
  }

  async using(number, chosen) {
    const lock = this.locks[number];
    const event = chosen === "expire" && TTLS[number] === LONG ? "nothing" : chosen;
    const body = async (signal) => {
      this.#acquired(number);
      assert.equal(signal, lock.signal);
      if (event === "throw") throw new Error("thrown");
      if (event === "steal") await this.#command([0, 1, 2], "SET", THEIRS);
      if (event === "delete") await this.#command([0, 1, 2], "DEL");
      if (event === "release") await lock.release();
      if (event === "expire") await until(() => signal.aborted && !lock.held);
    };
    const predict = (world, times) => outcomes.using(world, number, event, this.#given(number, times));
    await this.judge(() => said(() => lock.using(body)), predict);
  }

  async handOver(chosen, waiter) {
    const holder = this.#whose(chosen);
    if (holder === waiter || !this.worlds.every((world) => could(world, waiter, [null, holder]))) return;
    const both = async () => {
      const waiting = said(() => this.locks[waiter].acquire({ timeout: LIMIT }).then(() => true));
      const releasing = said(() => this.locks[holder].release());
      const [released, acquired] = [await releasing, await waiting];
      return `${released} ${acquired} ${await this.#regain(acquired, waiter, holder)}`;
    };
    await this.judge(both, (world, times) => outcomes.handOver(world, holder, waiter, this.#given(waiter, times)));
  }

  async abort(number, turns) {
    const controller = new AbortController();
    const acquire = async () => {
      if (turns === 0) controller.abort(new Error("aborted"));
      const options = { timeout: LIMIT, signal: controller.signal };
      const acquiring = said(() => this.locks[number].acquire(options).then(() => true));
      for (let turn = 0; turn < turns; turn += 1) await setImmediate();
      controller.abort(new Error("aborted"));
      return acquiring;
    };
    const predict = (world, times) => outcomes.abort(world, number, this.#given(number, times, PATIENT));
    if ((await this.judge(acquire, predict)) === "acquired") this.#acquired(number);
  }

  async expire() {
    const soon = performance.now() + LIMIT;
    const ends = (lock) => this.worlds.every(({ locks }) => (locks[this.locks.indexOf(lock)].end?.[1] ?? 0) < soon);
    await Promise.all(this.locks.filter(ends).map((lock) => until(() => !lock.held)));
  }

  async others(nodes, way) {
    const owner = { steal: THEIRS, "steal for a moment": BRIEF }[way] ?? null;
    const words = owner === null ? ["DEL"] : owner === THEIRS ? ["SET", owner] : ["SET", owner, "PX", MOMENT];
    await this.judge(
      () => said(() => this.#command(nodes, ...words)),
      (world, times) => outcomes.others(world, nodes, owner, [times[0] + MOMENT, times[1] + MOMENT]),
    );
  }

  /** Closes the second client, which releases its locks, or makes another one with other locks. */
  async closeOrOpen() {
    if (!this.closed) {
      await this.judge(
        () => said(() => this.clients[1].close()),
        (world) => [["done", SECOND.reduce(outcomes.close, world)]],
      );
      this.closed = true;
      return;
    }
    this.clients[1] = new Redlock(urls(this.count));
    this.closed = false;
    for (const number of SECOND) {
      this.#make(number);
      this.worlds = this.worlds.map((world) => ({ ...world, locks: world.locks.with(number, start(1, 1).locks[0]) }));
    }
  }

  async end() {
    for (const lock of this.locks) await said(() => lock.release());
    for (const client of this.clients) client.close();
  }
}

/** An operation of the machine, as fast-check has them. */
class Operation {
  constructor(name, args) {
    this.name = name;
    this.args = args;
  }

  check() {
    return true;
  }

  async run(_, machine) {
    await machine[this.name](...this.args);
    await machine.agrees();
  }

  toString() {
    return `${this.name}(${this.args.map((arg) => JSON.stringify(arg)).join(", ")})`;
  }
}

const operation = (name, ...args) => fc.tuple(...args).map((given) => new Operation(name, given));
const number = fc.nat(TTLS.length - 1);
/** `null` means a lock that is held. */
const holder = fc.option(number, { freq: 1 });

const OPERATIONS = [
  operation("acquire", number, fc.constantFrom("acquire", "tryAcquire", "acquire a little")),
  operation("acquire", number, fc.constantFrom("acquire", "tryAcquire")),
  operation("outwait", number),
  operation("release", holder),
  operation("dispose", holder),
  operation("extend", holder, fc.constantFrom(null, 0, 0.5, 2)),
  operation("using", number, fc.constantFrom("nothing", "throw", "steal", "delete", "release", "expire")),
  operation("handOver", holder, number),
  operation("abort", number, fc.nat(6)),
  operation("expire"),
  operation("others", fc.subarray([0, 1, 2], { minLength: 1 }), fc.constant("delete")),
  operation("others", fc.subarray([0, 1, 2], { minLength: 1 }), fc.constantFrom("steal", "steal for a moment")),
  operation("closeOrOpen"),
];

test("random operations come to what the model says", { timeout: 3_600_000 }, async () => {
  const commands = fc.commands(OPERATIONS, { maxCommands: 40, size: "max" });
  const property = fc.asyncProperty(fc.constantFrom(1, 3), commands, async (count, operations) => {
    const machine = new Machine(count);
    try {
      await fc.asyncModelRun(() => ({ model: {}, real: machine }), operations);
    } finally {
      await machine.end();
    }
  });
  const report = { includeErrorInReport: true };
  const always = { ...report, numRuns: process.env.TEST_ALL ? 80 : 25, seed: 1, endOnFailure: true };
  await fc.assert(property, runs === undefined ? always : { ...report, numRuns: Number(runs) });
});
