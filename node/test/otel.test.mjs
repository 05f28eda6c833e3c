// Metrics and traces, with the real SDK and the real exporter of OpenTelemetry.
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { diag } from "@opentelemetry/api";
import { MeterProvider } from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { Lock, LockInvalidArgument, LockLost, Redlock, stats } from "redlock-rs";
import { instrument, uninstrument } from "redlock-rs/otel";
import { lose } from "redlock-rs/testing";
import { fresh, serve, until } from "./servers.mjs";

const METHODS = ["acquire", "tryAcquire", "hold", "release", Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")];

const server = await serve();
const redlock = new Redlock(server.url);
let exporter;
afterEach(uninstrument);

/** Traces locks. */
function traced() {
  exporter = new InMemorySpanExporter();
  instrument({ tracerProvider: new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }) });
}

/** The spans with this name that have ended, in the order of their ends. */
const spans = (name) => exporter.getFinishedSpans().filter((span) => span.name === `redlock.${name}`);

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

test("what ends a hold without a release of its own is traced, and so is a refusal", async () => {
  traced();
  const name = fresh();
  const client = new Redlock(server.url);
  for (const [use, ...ends] of [
    [() => redlock.lock(name).using(() => undefined), "acquired", "released"],
    [async () => (await redlock.lock(name).acquire())[METHODS.at(-1)](), "acquired", "released"],
    [() => redlock.locked(name, { skipIfHeld: true }, () => undefined)(), "acquired", "released"],
    [() => client.lock(name).acquire(), "acquired"],
    [async () => client[Symbol.dispose ?? Symbol.for("Symbol.dispose")](), "released"],
    [() => assert.rejects(redlock.lock(name).acquire({ timeout: "soon" })), "invalid_argument"],
  ]) {
    exporter.reset();
    await use();
    const told = exporter.getFinishedSpans().map(({ attributes }) => attributes);
    assert.deepEqual(
      told.map((each) => each["redlock.outcome"] ?? each["redlock.end"]),
      ends,
      String(use),
    );
  }
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
