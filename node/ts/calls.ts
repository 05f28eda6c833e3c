import { isMainThread } from "node:worker_threads";
import {
  cancel,
  type Detached,
  drain,
  type Failure,
  type LockView,
  type NodeDiagnosis,
  Queue,
  shutdown,
  take,
  takeLoss,
} from "#native";
import { publishEvents, warnNow } from "./events.js";
import { atExit, outside, wakeable } from "./wake.js";

/** The result of a call. The awaiting function throws a failure, so that its stack leads there. */
type Result = LockView[] | NodeDiagnosis[] | Detached | Failure | "locked" | "free" | null;

type Resolve = (result: Result | Promise<never>) => void;

/** A signal on which calls wait. It has one listener for all of them, because Node warns of more than ten. */
interface Source {
  readonly signal: AbortSignal;
  /** By its id, what rejects each call. */
  readonly calls: Map<number, (reason: unknown) => void>;
  /** The listener. */
  readonly abort: () => void;
}

/** The queue of this environment, and its number. The first call makes it: importing starts nothing. */
let opened: { readonly native: Queue; readonly number: number } | undefined;

/** By its id, what settles each call whose result is awaited. */
const pending = new Map<number, Resolve>();
/** By its id, the signal of each call that has one. */
const abortable = new Map<number, Source>();
/** Those on which a call waits. */
const sources = new Map<AbortSignal, Source>();
/** By the id of a watch, the function that reports a loss. */
const watched = new Map<number, () => void>();

/**
 * Returns the number of the queue, on which the caller starts a call and then waits for its {@link outcome}, in the same
 * turn.
 *
 * @internal
 */
export function queue(): number {
  return (opened ?? open()).number;
}

function open(): NonNullable<typeof opened> {
  const native = wakeable(Queue, wake, isPending);
  opened = { native, number: native.number() };
  atExit(end);
  return opened;
}

/** Ends this environment: the process, or a worker thread. */
function end(): void {
  // A worker must not release the locks of other threads. Its own are released with its objects.
  if (isMainThread) shutdown();
  // The shutdown may have caused some.
  outside(() => publishEvents(queue(), warnNow));
}

function wake(): void {
  // A signal decides until its call is settled. Without signals, won locks are taken at once.
  const ready = drain(queue(), abortable.size === 0);
  if (ready[0] === 0) {
    publishEvents(queue());
    return;
  }
  // The listeners of a loss run code of the program. Before that, every lock that was taken belongs to its caller.
  for (const id of ready) if (id < 0) settle(-id, null);
  for (const id of ready) if (id > 0) report(id);
}

/** Reports a call that is ready and has a result to take, or a loss. */
function report(id: number): void {
  if (pending.has(id)) takeResult(id);
  else watched.get(id)?.();
}

/**
 * Waits for the result of a call that was started. An aborted signal ends the wait with its reason, and a lock that the
 * call has won is released.
 *
 * The result is taken in the turn in which the caller continues, so that a lock never goes to a caller that has gone.
 * While a call with a signal is pending, each result is taken by itself, after a look at the signal.
 *
 * @internal
 */
export function outcome(id: number, signal?: AbortSignal): Promise<Result> {
  return new Promise((resolve, reject) => {
    pending.set(id, resolve);
    if (signal === undefined) return;
    const source = sources.get(signal) ?? listen(signal);
    source.calls.set(id, reject);
    abortable.set(id, source);
  });
}

function listen(signal: AbortSignal): Source {
  const calls: Source["calls"] = new Map();
  const abort = (): void => {
    for (const id of calls.keys()) abortCall(id);
  };
  const source = { signal, calls, abort };
  sources.set(signal, source);
  signal.addEventListener("abort", abort);
  return source;
}

/** Whether a call is pending. Only then does the queue keep the process alive: not for a held lock or an idle client. */
function isPending(): boolean {
  return pending.size > 0;
}

/** Takes the result of a call that is ready, and settles the call with it. */
function takeResult(id: number): void {
  // Another listener may have stopped the event before ours, so the signal is checked here too.
  if (abortable.get(id)?.signal.aborted) {
    abortCall(id);
    return;
  }
  try {
    const taken = take(queue(), id);
    if (taken !== "again") settle(id, taken);
  } catch (error) {
    // This is a bug. It must fail only this call, so the rest of the batch continues.
    settle(id, Promise.reject(error));
  }
}

function abortCall(id: number): void {
  const source = abortable.get(id);
  if (source === undefined) return;
  source.calls.get(id)?.(source.signal.reason);
  settle(id, null);
  cancel(queue(), id);
}

/** Settles a call, unless it is settled already. */
function settle(id: number, result: Result | Promise<never>): void {
  const resolve = pending.get(id);
  if (resolve === undefined) return;
  pending.delete(id);
  resolve(result);
  if (abortable.size > 0) unlisten(id);
}

/** Takes a call from its signal, if it has one. A signal on which no call waits is not listened to. */
function unlisten(id: number): void {
  const source = abortable.get(id);
  if (source === undefined) return;
  abortable.delete(id);
  source.calls.delete(id);
  if (source.calls.size > 0) return;
  sources.delete(source.signal);
  source.signal.removeEventListener("abort", source.abort);
}

/**
 * Calls `lost` each time an object loses its lock. `id` is that of its native watch. Keeps neither of the two alive.
 *
 * @internal
 */
export function onLoss(id: number, lost: () => void): void {
  watched.set(id, () => {
    if (takeLoss(queue(), id)) lost();
    else watched.delete(id);
  });
}
