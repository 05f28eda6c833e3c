/**
 * Metrics and traces of locks, for OpenTelemetry. Needs the package `@opentelemetry/api`.
 *
 * @example
 * ```ts
 * import { PrometheusExporter } from "@opentelemetry/exporter-prometheus";
 * import { MeterProvider } from "@opentelemetry/sdk-metrics";
 * import { instrument } from "redlock-rs/otel";
 *
 * // Served on port 9464.
 * instrument({ meterProvider: new MeterProvider({ readers: [new PrometheusExporter()] }) });
 * ```
 *
 * @packageDocumentation
 */

import {
  type BatchObservableCallback,
  context,
  diag,
  type Meter,
  type MeterProvider,
  metrics,
  type Observable,
  type Span,
  SpanStatusCode,
  type Tracer,
  type TracerProvider,
  trace,
} from "@opentelemetry/api";
import { waited } from "#native";
import { queue } from "./calls.js";
import { dispose, Redlock } from "./client.js";
import { LockInvalidArgument, LockLost, RedlockError } from "./errors.js";
import { type AcquireOptions, asyncDispose, Lock, type TryOptions } from "./lock.js";
import { type Metric, stats } from "./stats.js";
import { checked, type Kinds } from "./validate.js";

/** Where metrics and traces go. */
export interface InstrumentOptions {
  /** What makes the meter; default the global provider, which must be set before. */
  readonly meterProvider?: MeterProvider | undefined;
  /** What makes the tracer; default the global provider. */
  readonly tracerProvider?: TracerProvider | undefined;
}

/** The package, as the scope of the meter and of the tracer. */
const { name, version } = require("../package.json") as { readonly name: string; readonly version: string };

const OPTIONS: Kinds = {
  meterProvider: { says: "a MeterProvider", fits: (value) => has(value, "getMeter") },
  tracerProvider: { says: "a TracerProvider", fits: (value) => has(value, "getTracer") },
};

/** The parts of a histogram, each an instrument of its own. */
const PARTS = ["_bucket", "_sum", "_count"];

/** The outcomes of calls for which the engine says how they waited. It does not for calls that it refused. */
const ANSWERS: readonly string[] = ["acquired", "timeout", "unavailable", "forbidden", "lost"];

/** What ends the instrumentation. */
let ends: (() => void)[] = [];

/**
 * Exports the metrics of this process, and traces locks in this thread.
 *
 * Metrics have the names of {@link stats}. A histogram is three instruments, `…_bucket` with the label `le`, `…_sum` and
 * `…_count`, because its observations are counted before a meter sees them. They only grow, but are up-down counters,
 * because exporters add `_total` to the names of counters. Metrics are those of the whole process, so a worker thread is
 * best given no meter provider. With many nodes or names, a view with a larger
 * `aggregationCardinalityLimit` lets the SDK keep more than 2 000 series of a metric.
 *
 * Two spans are children of the span in which a lock is acquired. `redlock.acquire` lasts as long as the call, with the
 * attributes `redlock.name` and `redlock.outcome`, and if it succeeds `redlock.fence`. Unless it is cancelled or refused,
 * it also has `redlock.contended` and `redlock.waits` (how often it had to wait). `redlock.hold` lasts until the lock is
 * released, lost or detached, with the attributes `redlock.name`, `redlock.fence` and `redlock.end` (`released`,
 * `lost`, `detached` or `abandoned`).
 *
 * Call it once the SDK has started. Locks that are held already are not traced. Another call replaces the former one.
 * Without a call, nothing is added to any lock.
 *
 * @throws {@link LockInvalidArgument}: a wrong option.
 *
 * @example
 * ```ts
 * import { NodeSDK } from "@opentelemetry/sdk-node";
 * import { instrument } from "redlock-rs/otel";
 *
 * new NodeSDK({ metricReaders, traceExporter }).start();
 * instrument();
 * ```
 */
export function instrument(options: InstrumentOptions = {}): void {
  const given = checked(options, OPTIONS, "{ meterProvider, tracerProvider }");
  const meter = (given?.meterProvider ?? metrics).getMeter(name, version);
  const tracer = (given?.tracerProvider ?? trace).getTracer(name, version);
  uninstrument();
  ends = [measure(meter), traceLocks(tracer), traceClients()];
}

/** Ends what {@link instrument} began. Locks that are held then are traced no further. */
export function uninstrument(): void {
  for (const end of ends) end();
  ends = [];
}

function has(value: unknown, method: string): boolean {
  return (
    typeof value === "object" && value !== null && typeof (value as Record<string, unknown>)[method] === "function"
  );
}

// --- Metrics ---

/** Observes all metrics at each collection. Returns what ends it. */
function measure(meter: Meter): () => void {
  const instruments = instrumentsOf(meter);
  const observables = [...instruments.values()];
  const observe: BatchObservableCallback = (result) => {
    for (const [name, metric] of Object.entries(stats())) {
      for (const { part, labels, value } of numbers(metric)) {
        const instrument = instruments.get(name + part);
        if (instrument !== undefined) result.observe(instrument, value, labels);
      }
    }
  };
  meter.addBatchObservableCallback(observe, observables);
  return () => meter.removeBatchObservableCallback(observe, observables);
}

/** Makes the instruments, by name. The unit is in the name: an exporter would add it once more. */
function instrumentsOf(meter: Meter): Map<string, Observable> {
  const made = new Map<string, Observable>();
  for (const [name, { kind, about: description }] of Object.entries(stats())) {
    if (kind === "gauge") made.set(name, meter.createObservableGauge(name, { description }));
    if (kind === "counter") made.set(name, meter.createObservableCounter(name, { description }));
    if (kind !== "histogram") continue;
    for (const part of PARTS) made.set(name + part, meter.createObservableUpDownCounter(name + part, { description }));
  }
  return made;
}

/** One number of a metric. */
interface Sample {
  /** Which part of a histogram it is; empty for others. */
  readonly part: string;
  readonly labels: Record<string, string>;
  readonly value: number;
}

function* numbers({ points }: Metric): Generator<Sample> {
  for (const { labels, value, histogram } of points) {
    if (value !== undefined) yield { part: "", labels, value };
    if (histogram === undefined) continue;
    for (const { le, count } of histogram.buckets) {
      const end = le === Number.POSITIVE_INFINITY ? "+Inf" : Number.isInteger(le) ? le.toFixed(1) : String(le);
      yield { part: "_bucket", labels: { ...labels, le: end }, value: count };
    }
    yield { part: "_sum", labels, value: histogram.sum };
    yield { part: "_count", labels, value: histogram.count };
  }
}

// --- Traces ---

/** The methods of a lock that begin or end a hold. All others call one of them. */
interface LockMethods {
  acquire(this: Lock, options?: AcquireOptions | AbortSignal): Promise<Lock>;
  tryAcquire(this: Lock, options?: TryOptions | AbortSignal): Promise<boolean>;
  hold<T>(this: Lock, body: () => T | PromiseLike<T>): Promise<T>;
  detach(this: Lock, ttl?: number): Promise<string>;
  release(this: Lock): Promise<void>;
  [asyncDispose](this: Lock): Promise<void>;
}

/** The methods of a client that end the holds of its locks. All others call one of them. */
interface ClientMethods {
  close(this: Redlock, ...given: Parameters<Redlock["close"]>): Promise<void>;
  [dispose](this: Redlock): void;
}

/** The span of a hold. It does not keep the lock alive. */
class Hold {
  readonly #span: Span;

  constructor(span: Span) {
    this.#span = span;
  }

  /** Ends the span, unless it has ended. */
  end(how: "released" | "detached" | "abandoned" | LockLost = "released"): void {
    if (!open.delete(this)) return;
    collected.unregister(this);
    harmless(() => {
      const isLost = how instanceof LockLost;
      this.#span.setAttribute("redlock.end", isLost ? "lost" : how);
      if (isLost) this.#span.setStatus({ code: SpanStatusCode.ERROR, message: how.message });
      this.#span.end();
    });
  }
}

/** The present hold of each lock that is traced. */
const holds = new WeakMap<Lock, Hold>();
/** The holds whose spans have not ended, and their locks. */
const open = new Map<Hold, WeakRef<Lock>>();
/** A lock that is garbage-collected while it is held stays held, and nobody hears of its end. */
const collected = new FinalizationRegistry<Hold>((hold) => hold.end("abandoned"));

/** Replaces the methods of locks by methods that make spans. Returns what undoes it. */
function traceLocks(tracer: Tracer): () => void {
  const { acquire, tryAcquire, hold, detach, release, [asyncDispose]: leave }: LockMethods = Lock.prototype;
  return replace<LockMethods>(Lock.prototype, {
    acquire(options) {
      return traceAcquire(tracer, this, () => acquire.call(this, options));
    },
    tryAcquire(options) {
      return traceAcquire(tracer, this, () => tryAcquire.call(this, options));
    },
    hold(body) {
      return traceBody(this, body, (watched) => hold.call(this, watched) as ReturnType<typeof watched>);
    },
    async detach(ttl) {
      // The lock may be acquired again before this is seen here.
      const hold = holds.get(this);
      const text = await detach.call(this, ttl);
      hold?.end("detached");
      return text;
    },
    release() {
      return traceRelease(this, () => release.call(this));
    },
    [asyncDispose]() {
      return traceRelease(this, () => leave.call(this));
    },
  });
}

/** Replaces the methods of clients that release their locks. Returns what undoes it. */
function traceClients(): () => void {
  const { close, [dispose]: closeNow }: ClientMethods = Redlock.prototype;
  return replace<ClientMethods>(Redlock.prototype, {
    close(...given) {
      return traceClose(() => close.apply(this, given));
    },
    [dispose]() {
      traceClose(() => closeNow.call(this));
    },
  });
}

/** Replaces methods of a class. Returns what undoes it. */
function replace<M extends object>(prototype: M, traced: M): () => void {
  const names = Reflect.ownKeys(traced) as (keyof M)[];
  const replaced = new Map(names.map((name) => [name, prototype[name]]));
  Object.assign(prototype, traced);
  return () => {
    // What another library has put over ours stays.
    const ours = names.filter((name) => prototype[name] === traced[name]);
    Object.assign(prototype, Object.fromEntries(ours.map((name) => [name, replaced.get(name)])));
  };
}

/** Traces a call to acquire, and begins the span of the hold. */
async function traceAcquire<R extends Lock | boolean>(
  tracer: Tracer,
  lock: Lock,
  acquire: () => Promise<R>,
): Promise<R> {
  const caller = context.active();
  const attributes = { "redlock.name": lock.name };
  const span = harmless(() => tracer.startSpan("redlock.acquire", { attributes }, caller));
  let result: R;
  try {
    result = await acquire();
  } catch (error) {
    harmless(() => endAcquire(span, lock, outcomeOf(lock, error), error));
    throw error;
  }
  if (result === false) {
    harmless(() => endAcquire(span, lock, "timeout"));
    return result;
  }
  harmless(() => span?.setAttributes(fenceOf(lock)));
  harmless(() => endAcquire(span, lock, "acquired"));
  harmless(() => {
    const held = { ...attributes, ...fenceOf(lock) };
    beginHold(tracer.startSpan("redlock.hold", { attributes: held }, caller), lock);
  });
  return result;
}

function endAcquire(span: Span | undefined, lock: Lock, outcome: string, failure?: unknown): void {
  span?.setAttribute("redlock.outcome", outcome);
  const known = ANSWERS.includes(outcome) ? waited(queue(), Lock.numberOf(lock)) : null;
  if (known !== null) span?.setAttributes({ "redlock.contended": known.contended, "redlock.waits": known.waits });
  // That others hold the lock is an answer.
  if (failure instanceof RedlockError && outcome === failure.code && outcome !== "timeout") {
    span?.setStatus({ code: SpanStatusCode.ERROR, message: failure.message });
  }
  span?.end();
}

/** Returns how an acquire ended that threw `error`: its code, or that its signal was aborted with `error`. */
function outcomeOf(lock: Lock, error: unknown): string {
  if (!(error instanceof RedlockError)) return "cancelled";
  // Only a lock that is attached is lost in an acquire.
  if (error.code === "lost" && error.lockName !== lock.name) return "cancelled";
  // No acquire fails so.
  return error.code === "not_held" ? "cancelled" : error.code;
}

function beginHold(span: Span, lock: Lock): void {
  if (!span.isRecording()) return;
  const hold = new Hold(span);
  holds.set(lock, hold);
  open.set(hold, new WeakRef(lock));
  collected.register(lock, hold, hold);
  const { signal } = lock;
  const lost = (): void => hold.end(signal.reason);
  if (signal.aborted) lost();
  else signal.addEventListener("abort", lost, { once: true });
}

/** Traces a body under the lock, up to the release that follows. */
async function traceBody<T>(
  lock: Lock,
  body: () => T | PromiseLike<T>,
  run: (watched: () => Promise<T>) => Promise<T>,
): Promise<T> {
  const seen: { hold?: Hold | undefined; failed?: true } = {};
  const watched = async (): Promise<T> => {
    try {
      return await body();
    } catch (error) {
      seen.failed = true;
      throw error;
    } finally {
      // The body may have released the lock, and acquired it again.
      seen.hold = holds.get(lock);
    }
  };
  try {
    return await run(watched);
  } catch (error) {
    // What the body throws may be about another lock.
    if (error instanceof LockLost && !seen.failed) seen.hold?.end(error);
    throw error;
  } finally {
    seen.hold?.end();
  }
}

/** Traces a release. */
async function traceRelease<R>(lock: Lock, release: () => Promise<R>): Promise<R> {
  // The lock may be acquired again before the release has ended.
  const hold = holds.get(lock);
  try {
    return await release();
  } catch (error) {
    if (error instanceof LockLost) hold?.end(error);
    throw error;
  } finally {
    hold?.end();
  }
}

/** Traces the end of a client, whose locks are not held any more from its call on. */
function traceClose<R>(close: () => R): R {
  const held = [...open].filter(([, lock]) => lock.deref()?.held);
  const result = close();
  for (const [hold, lock] of held) if (!lock.deref()?.held) hold.end();
  return result;
}

/** Returns the attribute of the fence; nothing if the lock's protocol has none. */
function fenceOf(lock: Lock): Record<string, number> {
  try {
    return { "redlock.fence": lock.fence };
  } catch (error) {
    if (error instanceof LockInvalidArgument) return {};
    throw error;
  }
}

/** Runs code of the program's provider. A trace that fails must harm no lock. */
function harmless<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    diag.error("redlock-rs: a trace failed", error);
    return undefined;
  }
}
