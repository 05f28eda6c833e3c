// Performs the suite's requests with the Node package: JSON lines in, JSON lines out, without judging.
// The protocol is described in tests/README.md.

import { subscribe } from "node:diagnostics_channel";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setImmediate } from "node:timers/promises";
import { parseArgs } from "node:util";

// The driver imports the package by its name from inside of it, so its own `exports` choose the file.
const require = createRequire(new URL("../../../node/package.json", import.meta.url));
const library = require("redlock-rs");
const { MemoryServer, lose } = require("redlock-rs/testing");
const { Redlock, RedlockError, LockInvalidArgument, LockNotHeld } = library;

const clients = new Map();
const locks = new Map();
const candidates = new Map();
const servers = new Map();
const cancels = new Map();
let handles = 0;

const ops = {
  client({ nodes, options }) {
    const given = camelCase(options);
    // The path of a file, from which a provider takes the login.
    if (given.credentials !== undefined) given.credentials = login.bind(undefined, given.credentials);
    return keep(clients, new Redlock(nodes, given));
  },
  lock({ client, name, text, options }) {
    return keep(locks, clients.get(client).lock(text ?? Buffer.from(name, "hex"), camelCase(options)));
  },
  lock_all({ client, names, options }) {
    return keep(locks, clients.get(client).lockAll(names.map((name) => Buffer.from(name, "hex")), camelCase(options)));
  },
  semaphore({ client, name, permits, options }) {
    return keep(locks, clients.get(client).semaphore(Buffer.from(name, "hex"), permits, camelCase(options)));
  },
  async attach({ client, text, options }) {
    const lock = await clients.get(client).attach(text, camelCase(options));
    return { ...keep(locks, lock), ...state(lock) };
  },
  async detach({ lock, ttl_ms }) {
    return { text: await locks.get(lock).detach(ttl_ms) };
  },
  async acquire({ id, lock, timeout_ms }) {
    const abort = new AbortController();
    cancels.set(id, abort);
    try {
      await locks.get(lock).acquire({ timeout: timeout_ms, signal: abort.signal });
    } catch (error) {
      if (error === abort.signal.reason) return { cancelled: true };
      throw error;
    } finally {
      cancels.delete(id);
    }
    return { acquired: true, ...state(locks.get(lock)) };
  },
  async try_acquire({ lock }) {
    return { acquired: await locks.get(lock).tryAcquire(), ...state(locks.get(lock)) };
  },
  async is_locked({ lock }) {
    return { is_locked: await locks.get(lock).isLocked() };
  },
  async extend({ lock, ttl_ms }) {
    await locks.get(lock).extend(ttl_ms);
    return state(locks.get(lock));
  },
  async release({ lock }) {
    await locks.get(lock).release();
    return {};
  },
  async leave({ lock }) {
    await locks.get(lock)[asyncDispose]();
    return {};
  },
  names({ lock }) {
    const { name, names } = locks.get(lock);
    return { name, names: names.map((each) => Buffer.from(each).toString("hex")) };
  },
  check({ lock }) {
    locks.get(lock).check();
    return {};
  },
  state({ lock }) {
    return state(locks.get(lock));
  },
  async wait_lost({ lock, limit_ms }) {
    const { signal } = locks.get(lock);
    await new Promise((resolve) => {
      const tell = () => resolve(clearTimeout(limit));
      const limit = setTimeout(() => resolve(signal.removeEventListener("abort", tell)), signal.aborted ? 0 : limit_ms);
      signal.addEventListener("abort", tell, { once: true });
    });
    return { lost: signal.aborted ? described(signal.reason) : null, told_ns: now() };
  },
  async inspect({ client, name }) {
    return viewed(await clients.get(client).inspect(Buffer.from(name, "hex")));
  },
  async inspect_semaphore({ client, name, permits }) {
    const views = await clients.get(client).inspectSemaphore(Buffer.from(name, "hex"), permits);
    return { views: views.map(viewed) };
  },
  async list_locks({ client, name, most }) {
    const views = [];
    for await (const view of clients.get(client).listLocks(Buffer.from(name, "hex"))) {
      if (views.push(viewed(view)) === most) break;
    }
    return { views };
  },
  async wait_free({ id, client, name, timeout_ms }) {
    const abort = new AbortController();
    cancels.set(id, abort);
    const options = { timeout: timeout_ms, signal: abort.signal };
    try {
      return { free: await clients.get(client).waitFree(Buffer.from(name, "hex"), options) };
    } catch (error) {
      if (error === abort.signal.reason) return { cancelled: true };
      throw error;
    } finally {
      cancels.delete(id);
    }
  },
  async break_lock({ client, name, slot }) {
    const view = await clients.get(client).breakLock(Buffer.from(name, "hex"), slot);
    return { views: view ? [viewed(view)] : [] };
  },
  election({ client, name, options }) {
    return keep(candidates, new Candidate(clients.get(client).election(Buffer.from(name, "hex"), camelCase(options))));
  },
  async run({ election, lingers, detaches }) {
    return await candidates.get(election).run(lingers, detaches);
  },
  terms({ election }) {
    const candidate = candidates.get(election);
    candidate.look();
    return { terms: candidate.terms, stopped: candidate.election.stopped };
  },
  end_term({ election, fail }) {
    candidates.get(election).end(fail);
    return {};
  },
  stop({ election }) {
    candidates.get(election).election.stop();
    return {};
  },
  async leader({ election }) {
    return { leader: await candidates.get(election).election.leader() };
  },
  async diagnose({ client }) {
    return { nodes: await clients.get(client).diagnose() };
  },
  stats() {
    const metrics = Object.fromEntries(Object.entries(library.stats()).map(([name, metric]) => [name, measured(metric)]));
    return { metrics, openmetrics: library.openMetrics() };
  },
  count_by_name({ most }) {
    library.countByName(most);
    return {};
  },
  events() {
    return { events: heard.splice(0) };
  },
  spans() {
    tracing ??= traced();
    const ended = tracing.exporter.getFinishedSpans().map(spanned);
    tracing.exporter.reset();
    return { spans: ended };
  },
  cancel({ call }) {
    cancels.get(call)?.abort();
    return {};
  },
  forget({ handle }) {
    for (const kept of [locks, candidates, clients]) kept.delete(handle);
    return {};
  },
  async live() {
    // Objects that a finalizer releases are gone a turn later.
    globalThis.gc();
    await setImmediate();
    globalThis.gc();
    return { live: process.memoryUsage().heapUsed };
  },
  server() {
    const server = new MemoryServer();
    return { ...keep(servers, server), url: server.url };
  },
  at_server({ server, action, name, ttl_ms, by_ms, available }) {
    const at = servers.get(server);
    const actions = {
      hold: () => at.hold(Buffer.from(name, "hex"), ttl_ms),
      release: () => at.release(Buffer.from(name, "hex")),
      wipe: () => at.wipe(),
      advance: () => at.advance(by_ms),
      set_available: () => {
        at.available = available;
      },
    };
    actions[action]();
    return {};
  },
  lose({ lock, reason }) {
    lose(locks.get(lock), reason);
    return {};
  },
  async close({ client, limit_ms }) {
    await clients.get(client).close({ limit: limit_ms });
    return {};
  },
};

// The first releases of Node 20 lack it.
const asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");

class BodyError extends Error {}

/** The ttl of a detached term. */
const DETACHED_MS = 60_000;

/** A candidate of an election, whose body lasts until the test ends it. */
class Candidate {
  terms = [];
  /** That of the present term. */
  #lock;

  constructor(election) {
    this.election = election;
  }

  async run(lingers, detaches) {
    try {
      const result = await this.election.run((signal, lock) => this.#body(signal, lock, lingers, detaches));
      return { result: result ?? null };
    } catch (error) {
      if (error instanceof BodyError) return { failed: true };
      throw error;
    }
  }

  /** Notes until when the present term is valid, or that it is lost. */
  look() {
    const term = this.terms.at(-1);
    const read_ns = now();
    if (this.#lock?.held) term.valid_until_ns = read_ns + this.#lock.remaining * 1e6;
    else if (this.#lock?.signal.aborted) term.lost = described(this.#lock.signal.reason);
  }

  async #body(signal, lock, lingers, detaches) {
    const began_ns = now();
    const valid_until_ns = began_ns + lock.remaining * 1e6;
    const term = { fence: lock.fence, began_ns, valid_until_ns, over_ns: null, how: null, lost: null };
    this.terms.push(term);
    this.#lock = lock;
    const ended = new Promise((resolve) => {
      this.end = (fail) => resolve(fail ? "failed" : "returned");
    });
    const cut = new Promise((resolve) => {
      signal.addEventListener("abort", () => resolve("cut"), { once: true });
      if (signal.aborted) resolve("cut");
    });
    if (detaches) term.detach = await lock.detach(DETACHED_MS).catch(({ code }) => code);
    const how = await Promise.race([ended, cut]);
    this.look();
    this.#lock = undefined;
    Object.assign(term, { over_ns: now(), how });
    if (how === "cut" && lingers) await ended;
    if (how === "failed") throw new BodyError();
    return term.fence;
  }
}

// What the library has told of itself since the last request for it.
const heard = [];
for (const topic of ["node", "lock", "process"]) {
  subscribe(`redlock:${topic}`, ({ code, level, message, fields }) => heard.push({ code, topic, level, message, fields }));
}

// How the spans of locks are kept, from the first request for them on.
let tracing;

function traced() {
  const { context, trace } = require("@opentelemetry/api");
  const { AsyncLocalStorageContextManager } = require("@opentelemetry/context-async-hooks");
  const sdk = require("@opentelemetry/sdk-trace-base");
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  const exporter = new sdk.InMemorySpanExporter();
  const tracerProvider = new sdk.BasicTracerProvider({ spanProcessors: [new sdk.SimpleSpanProcessor(exporter)] });
  require("redlock-rs/otel").instrument({ tracerProvider });
  const caller = trace.wrapSpanContext({ traceId: "1".repeat(32), spanId: "1".repeat(16), traceFlags: 1 });
  return { exporter, run: (work) => context.with(trace.setSpan(context.active(), caller), work) };
}

/** A span that has ended. An older SDK has only the id of its parent. */
function spanned({ name, attributes, status, parentSpanContext, parentSpanId }) {
  const parent = (parentSpanContext?.spanId ?? parentSpanId) === "1".repeat(16) ? "caller" : null;
  return { name, parent, attributes, failed: status.code === 2 };
}

/** A metric without the infinite end of its histograms, for which JSON has no number. */
function measured({ kind, about, points }) {
  const point = ({ labels, value, histogram }) => {
    if (histogram === undefined) return { labels, value };
    const buckets = histogram.buckets.map(({ le, count }) => [Number.isFinite(le) ? le : null, count]);
    return { labels, count: histogram.count, sum: histogram.sum, buckets };
  };
  return { kind, about, points: points.map(point) };
}

function keep(kept, value) {
  handles += 1;
  kept.set(handles, value);
  return { handle: handles };
}

/** CLOCK_MONOTONIC, the clock that all processes of a machine share. */
function now() {
  return Number(process.hrtime.bigint());
}

function state(lock) {
  // The clock is read first, so that `remaining` never counts from a later instant than the library means.
  const read_ns = now();
  const { remaining, held, slot } = lock;
  let fence = null;
  try {
    fence = lock.fence;
  } catch (error) {
    if (!(error instanceof LockNotHeld || error instanceof LockInvalidArgument)) throw error;
  }
  return { read_ns, held, remaining_ms: remaining, fence, slot };
}

/** Options as Node has them. */
function camelCase(options) {
  const name = (key) => key.replace(/_ms$/, "").replace(/_(.)/g, (_, letter) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(options).map(([key, value]) => [name(key), own(value)]));
}

/** The login in a file, or the failure that it asks for. */
async function login(path) {
  const { username, password, ms, error } = JSON.parse(readFileSync(path, "utf8"));
  if (error !== undefined) throw new Error(error);
  return { username, password, expiresIn: ms };
}

/** Converts a value that JSON cannot express; returns others unchanged. */
function own(value) {
  if (value?.Number !== undefined) return Number(value.Number);
  return value?.BigInt === undefined ? value : BigInt(value.BigInt);
}

function described({ code, lockName = null, reason = null, option = null, nodes, message, retryable, ...holder }) {
  const votes = nodes.map(({ node, answer }) => [node, answer]);
  const { holderLabel = null, holderTtlLeft = null, heldByThisProcess = false } = holder;
  const held = {
    holder_label: holderLabel,
    holder_ttl_left_ms: holderTtlLeft,
    held_by_this_process: heldByThisProcess,
  };
  return { code, name: lockName, reason, option, nodes: votes, message, retryable, ...held };
}

function viewed({ since, ttlLeft, nodes, ...view }) {
  return { ...view, since_ms: since && since.getTime(), ttl_left_ms: ttlLeft, nodes: nodes.map(nodeViewed) };
}

function nodeViewed({ node, key, state, label, fence, ttlLeft }) {
  return { node, key, state, label: label ?? null, fence: fence ?? null, ttl_left_ms: ttlLeft ?? null };
}

async function perform(request) {
  const op = Object.hasOwn(ops, request.op) ? ops[request.op] : undefined;
  if (op === undefined) return { error: { code: "driver", message: `no such op: ${request.op}` } };
  try {
    return { ok: await (tracing === undefined ? op(request) : tracing.run(() => op(request))) };
  } catch (error) {
    if (error instanceof RedlockError) return { error: described(error) };
    console.error(error);
    return { error: { code: "driver", message: String(error) } };
  }
}

async function answer(request) {
  const invoke_ns = now();
  const result = await perform(request);
  say({ id: request.id, ...result, invoke_ns, return_ns: now() });
}

function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

const { face } = parseArgs({ options: { face: { type: "string" } } }).values;
if (face !== "node") throw new Error("usage: node_driver.mjs --face node");
const codes = Object.values(library)
  .filter((member) => member?.prototype instanceof RedlockError)
  .map((member) => new member("", {}).code);
say({ hello: { language: "node", face, protocol: 1, codes } });
// At the end of input, only open calls keep the process alive.
for await (const line of createInterface({ input: process.stdin })) void answer(JSON.parse(line));
