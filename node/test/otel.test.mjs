// Metrics and traces, with the real SDK and the real exporter of OpenTelemetry.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { context, diag, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { MeterProvider } from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { Lock, LockInvalidArgument, LockLost, Redlock, stats } from "redlock-rs";
import { instrument, uninstrument } from "redlock-rs/otel";
import { lose, MemoryServer } from "redlock-rs/testing";
import { fresh, serve, until } from "./servers.mjs";

const METHODS = ["acquire", "tryAcquire", "hold", "release", Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")];

const server = await serve();
const redlock = new Redlock(server.url);
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
/** What the program has as its own spans, in the context of which locks are used. */
let exporter;
let tracer;
afterEach(uninstrument);

/** Traces locks, and returns the provider. */
function traced(...processors) {
  exporter = new InMemorySpanExporter();
  const spanProcessors = [new SimpleSpanProcessor(exporter), ...processors];
  const tracerProvider = new BasicTracerProvider({ spanProcessors });
  tracer = tracerProvider.getTracer("the program");
  instrument({ tracerProvider });
  return tracerProvider;
}

/** Runs `body` in a span of the program, which it gets. */
async function inSpan(body) {
  const span = tracer.startSpan("request");
  try {
    return await context.with(trace.setSpan(context.active(), span), () => body(span));
  } finally {
    span.end();
  }
}

/** The spans with this name that have ended, in the order of their ends. */
const spans = (name) => exporter.getFinishedSpans().filter((span) => span.name === `redlock.${name}`);

/** The parent of a span. Older releases of the SDK have only its id. */
const parentOf = (span) => span.parentSpanContext?.spanId ?? span.parentSpanId;

// --- Metrics ---

test("metrics are those of the snapshot, and end with the instrumentation", async () => {
  const { meterProvider, collect } = reader();
  instrument({ meterProvider });
  const lock = await redlock.lock(fresh()).acquire();
  const { held, ...others } = await collect();
  assert.equal(held, stats().redlock_held.points[0].value);
  assert.deepEqual(others, {});
  await lock.release();
  assert.equal((await collect()).held, 0);
  const other = reader();
  instrument({ meterProvider: other.meterProvider });
  assert.deepEqual(await collect(), {}, "another call replaces the former one");
  assert.equal((await other.collect()).held, 0);
  uninstrument();
  assert.deepEqual(await other.collect(), {});
});

/** A provider of meters, and what reads from it how many locks are held. */
function reader() {
  const observed = new Map();
  const callbacks = new Map();
  const instrument = (name, options) => ({ name, options });
  const meter = {
    createObservableGauge: instrument,
    createObservableCounter: instrument,
    createObservableUpDownCounter: instrument,
    addBatchObservableCallback: (callback, instruments) => callbacks.set(callback, instruments),
    removeBatchObservableCallback: (callback) => callbacks.delete(callback),
  };
  const collect = async () => {
    observed.clear();
    for (const [callback, instruments] of callbacks) {
      const observe = (one, value) => {
        assert.ok(instruments.includes(one));
        if (one.name === "redlock_held") observed.set("held", value);
      };
      await callback({ observe });
    }
    return Object.fromEntries(observed);
  };
  return { meterProvider: { getMeter: () => meter }, collect };
}

test("providers are checked", () => {
  const wrong = [
    [{ meterProvider: {} }, /meterProvider must be a MeterProvider, not an object/],
    [{ tracerProvider: "global" }, /tracerProvider must be a TracerProvider, not a string/],
    [{ exporter: {} }, /exporter/],
    ["traces", /options must be an object/],
  ];
  for (const [options, message] of wrong) {
    assert.throws(
      () => instrument(options),
      (error) => error instanceof LockInvalidArgument && message.test(error.message),
    );
  }
  instrument({ meterProvider: new MeterProvider(), tracerProvider: undefined });
  instrument();
});

// --- Traces ---

test("an acquire and a hold are children of the caller's span", async () => {
  traced();
  const lock = redlock.lock(fresh());
  const request = await inSpan(async (span) => {
    await lock.acquire();
    assert.deepEqual(spans("hold"), []);
    assert.equal(trace.getSpan(context.active()), span, "the caller's span is still the active one");
    return span;
  });
  const { fence } = lock;
  await lock.release();
  const [acquire] = spans("acquire");
  const [hold] = spans("hold");
  const common = { "redlock.name": lock.name, "redlock.fence": fence };
  const uncontended = { "redlock.outcome": "acquired", "redlock.contended": false, "redlock.waits": 0 };
  assert.deepEqual({ ...acquire.attributes }, { ...common, ...uncontended });
  assert.deepEqual({ ...hold.attributes }, { ...common, "redlock.end": "released" });
  for (const span of [acquire, hold]) {
    assert.equal(parentOf(span), request.spanContext().spanId);
    assert.equal(span.spanContext().traceId, request.spanContext().traceId);
    assert.equal(span.status.code, SpanStatusCode.UNSET);
    assert.equal(span.instrumentationScope.name, "redlock-rs");
    assert.match(span.instrumentationScope.version, /^\d+\.\d+\.\d+/);
  }
  assert.equal(exporter.getFinishedSpans().length, 3);
  const [held, other] = [await lock.acquire(), redlock.lock(lock.name)];
  const waiting = other.acquire();
  await until(() => stats().redlock_waiting.points[0].value === 1);
  await held.release();
  await (await waiting).release();
  const waited = spans("acquire").at(-1).attributes;
  assert.ok(waited["redlock.contended"] && waited["redlock.waits"] > 0);
});

test("each way to acquire and to release is traced", async () => {
  traced();
  const name = fresh();
  const asyncDispose = METHODS.at(-1);
  const ways = {
    acquire: async () => (await redlock.lock(name).acquire()).release(),
    tryAcquire: async () => {
      const lock = redlock.lock(name);
      assert.equal(await lock.tryAcquire(), true);
      await lock.release();
    },
    using: () => redlock.lock(name).using(() => undefined),
    dispose: async () => (await redlock.lock(name).acquire())[asyncDispose](),
    locked: () => redlock.locked(name, undefined, () => undefined)(),
    several: () => redlock.lockAll([name, "other"]).using(() => undefined),
    permit: () => redlock.semaphore(name, 2).using(() => undefined),
    election: () => redlock.election(name).run(() => undefined),
  };
  for (const [way, use] of Object.entries(ways)) {
    exporter.reset();
    const { spanId } = await inSpan(async (span) => {
      await use();
      return span.spanContext();
    });
    assert.deepEqual([spans("acquire").length, spans("hold").length], [1, 1], way);
    assert.deepEqual([parentOf(spans("acquire")[0]), parentOf(spans("hold")[0])], [spanId, spanId], way);
    assert.equal(spans("hold")[0].attributes["redlock.end"], "released", way);
  }
});

test("each end of an acquire is its outcome", async () => {
  traced();
  const held = await redlock.lock(fresh()).acquire();
  const other = redlock.lock(held.name);
  const memory = new MemoryServer();
  const down = new Redlock(memory.url, { nodeTimeout: 50 }).lock("down");
  memory.available = false;
  const { ERROR, UNSET } = SpanStatusCode;
  for (const [outcome, status, call] of [
    ["timeout", UNSET, () => other.acquire({ timeout: 0 })],
    ["timeout", UNSET, () => other.tryAcquire()],
    ["timeout", UNSET, () => redlock.locked(held.name, { skipIfHeld: true }, () => undefined)()],
    ["cancelled", UNSET, () => other.acquire({ signal: AbortSignal.timeout(20) })],
    ["already_held", ERROR, () => held.acquire()],
    ["invalid_argument", ERROR, () => other.acquire({ timeout: "soon" })],
    ["unavailable", ERROR, () => down.tryAcquire()],
  ]) {
    exporter.reset();
    const result = await call().catch((error) => error);
    const [acquire, ...more] = exporter.getFinishedSpans();
    assert.deepEqual(more, [], outcome);
    const { "redlock.name": name, ...attributes } = acquire.attributes;
    const isContended = { timeout: true, unavailable: false }[outcome];
    const waited = isContended === undefined ? {} : { "redlock.contended": isContended, "redlock.waits": 0 };
    assert.deepEqual(attributes, { "redlock.outcome": outcome, ...waited }, String(call));
    assert.equal(acquire.status.code, status, String(call));
    if (status === ERROR) assert.equal(acquire.status.message, result.message);
  }
  await held.release();
});

test("a loss ends the span of the hold at once, with its message", async () => {
  traced();
  const lock = await redlock.lock(fresh()).acquire();
  lose(lock, "taken");
  const [{ attributes, status }] = spans("hold");
  assert.equal(attributes["redlock.end"], "lost");
  assert.equal(status.code, SpanStatusCode.ERROR);
  assert.match(status.message, /lock/);
  await assert.rejects(lock.release(), LockLost);
  await lock.acquire();
  await lock.release();
  assert.deepEqual(
    spans("hold").map((span) => span.attributes["redlock.end"]),
    ["lost", "released"],
  );
});

test("the end of a client ends the spans of its holds, and of no others", async () => {
  traced();
  const other = await redlock.lock(fresh()).acquire();
  for (const end of ["close", METHODS.at(-1), Symbol.dispose ?? Symbol.for("Symbol.dispose")]) {
    const client = new Redlock(server.url);
    const { name } = await client.lock(fresh()).acquire();
    await client[end]();
    const ended = spans("hold").map(({ attributes }) => [attributes["redlock.name"], attributes["redlock.end"]]);
    assert.deepEqual(ended, [[name, "released"]], String(end));
    exporter.reset();
  }
  await other.release();
});

test("a loss that the release finds is a loss too", async () => {
  traced();
  const older = redlock.lock(fresh(), { protocol: "setnx", ttl: 1_000 });
  await older.acquire();
  await server.ask("DEL", older.name);
  await assert.rejects(older.release(), LockLost);
  const [{ attributes }] = spans("hold");
  assert.deepEqual({ ...attributes }, { "redlock.name": older.name, "redlock.end": "lost" });
});

test("a traced lock that is garbage-collected stays held, and its span ends", async () => {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc");
  traced();
  const name = fresh();
  await (async () => {
    await redlock.lock(name, { ttl: 1_000, maxHold: 1_500 }).acquire();
  })();
  await until(() => {
    gc();
    return spans("hold").length === 1;
  });
  assert.equal(spans("hold")[0].attributes["redlock.end"], "abandoned");
  await until(async () => (await server.ask("EXISTS", name)) === 0);
});

test("a tracer that throws costs no lock", async (t) => {
  const failures = [];
  const quiet = () => undefined;
  const error = (...words) => failures.push(words);
  diag.setLogger({ error, warn: quiet, info: quiet, debug: quiet, verbose: quiet });
  t.after(() => diag.disable());
  const broken = () => {
    throw new Error("mine");
  };
  const span = { isRecording: () => true, setAttribute: broken, setAttributes: broken, setStatus: broken, end: broken };
  for (const startSpan of [broken, () => span]) {
    instrument({ tracerProvider: { getTracer: () => ({ startSpan }) } });
    const held = await redlock.lock(fresh()).acquire();
    assert.equal(await redlock.lock(held.name).tryAcquire(), false);
    await assert.rejects(redlock.lock(fresh()).acquire({ timeout: "soon" }), LockInvalidArgument);
    lose(held, "taken");
    await assert.rejects(held.release(), LockLost);
    assert.equal(await redlock.lock(held.name).using(() => 5), 5);
  }
  assert.ok(failures.length > 0 && failures.every(([text]) => text === "redlock-rs: a trace failed"), String(failures));
});

test("without instrumentation nothing is replaced, and afterwards nothing is left", async () => {
  const described = () => METHODS.map((method) => Object.getOwnPropertyDescriptor(Lock.prototype, method));
  const before = described();
  traced();
  for (const [index, { value, enumerable }] of described().entries()) {
    const original = before[index];
    assert.notEqual(value, original.value);
    assert.deepEqual(
      [value.name, value.length, enumerable],
      [original.value.name, original.value.length, original.enumerable],
    );
  }
  uninstrument();
  assert.deepEqual(described(), before);
  await redlock.lock(fresh()).using(() => undefined);
  assert.deepEqual(exporter.getFinishedSpans(), []);
  uninstrument();
});
