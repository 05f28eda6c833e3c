import { AsyncResource } from "node:async_hooks";
import { runInThisContext } from "node:vm";
import { isMainThread } from "node:worker_threads";
import { type Failure, type Holder, Queue, shutdown, type View } from "#native";

/** A call whose result is awaited. */
interface Call {
  readonly resolve: (result: Result) => void;
  readonly reject: (reason: unknown) => void;
  readonly signal: AbortSignal | undefined;
  /** The listener of the signal. */
  readonly abort: () => void;
}

/** The result of a call. The awaiting function throws a failure, so that its stack leads there. */
type Result = View[] | Failure | "locked" | "free" | null;

const ENDING: Failure = {
  code: "unavailable",
  message: "the call was cancelled because the process is exiting",
  nodes: [],
};

/** The queue of this environment and its pending calls. The first call makes it: importing starts nothing. */
interface Calls {
  readonly queue: Queue;
  readonly pending: Map<number, Call>;
  /** By the id of a watch, the function that reports a loss. */
  readonly watched: Map<number, () => void>;
  readonly native: Native;
}

let calls: Calls | undefined;

/** What the queue keeps for the life of the process. */
interface Native {
  /** The queue keeps the process alive while a call is pending; a held lock or an idle client does not. */
  alive: boolean;
  /** Test runners ask it what keeps the process alive. */
  hasRef(): boolean;
  readonly wake: () => void;
}

// A test runner loads this file once for each test file, in a realm that it wants to forget. So what the queue keeps is of
// the realm of Node itself, and keeps its target no longer than the realm does.
const native: (wake: () => void) => Native = runInThisContext(`(wake) => {
  const weak = new WeakRef(wake);
  return { alive: false, hasRef() { return this.alive; }, wake: () => weak.deref()?.() };
}`);

// The context of the import, and not that of the first call: the queue keeps what `AsyncLocalStorage` has in it, and
// listeners of signals would run in it.
class Import extends AsyncResource {
  hasRef(): boolean {
    return false;
  }
}
const imported = new Import("redlock-rs");

function open(): Calls {
  if (calls === undefined) {
    const kept = native(wake);
    calls = {
      queue: imported.runInAsyncScope(() => new Queue(kept.wake, kept)),
      native: kept,
      pending: new Map(),
      watched: new Map(),
    };
    // A worker must not release the locks of other threads. Its own are released with its objects.
    if (isMainThread) process.once("exit", shutdown);
  }
  return calls;
}

function wake(): void {
  const { queue, watched } = open();
  for (const id of queue.drain()) {
    if (!settle(Math.abs(id), id < 0)) watched.get(id)?.();
  }
}

/**
 * Returns the queue, on which the caller starts a call and then waits for its {@link outcome}, in the same turn.
 *
 * @internal
 */
export function queue(): Queue {
  return open().queue;
}

/**
 * Waits for the result of a call that was started. An aborted signal ends the wait with its reason, and a lock that the
 * call has won is released.
 *
 * The result is taken in the turn in which the caller continues, so that a lock never goes to a caller that has gone.
 *
 * @internal
 */
export function outcome(id: number, signal?: AbortSignal): Promise<Result> {
  const { pending } = open();
  if (pending.size === 0) keepAlive(true);
  return new Promise((resolve, reject) => {
    const abort = (): void => void settle(id);
    pending.set(id, { resolve, reject, signal, abort });
    signal?.addEventListener("abort", abort, { once: true });
  });
}

function keepAlive(alive: boolean): void {
  const { queue, native } = open();
  queue.keepAlive(alive);
  native.alive = alive;
}

/** Settles a call that is ready, aborted, or done without a result to take. Returns false if there is no such call. */
function settle(id: number, done = false): boolean {
  const { queue, pending } = open();
  const call = pending.get(id);
  if (call === undefined) return false;
  const { resolve, reject, signal, abort } = call;
  try {
    // Another listener may have stopped the event before ours, so the signal is checked here too.
    if (signal?.aborted) {
      queue.cancel(id);
      reject(signal.reason);
    } else {
      const taken = done ? null : queue.take(id);
      if (taken === "again") return true;
      resolve(taken === "gone" ? ENDING : taken);
    }
  } catch (error) {
    // This is a bug. It must fail only this call, so the rest of the batch continues.
    reject(error);
  }
  pending.delete(id);
  if (pending.size === 0) keepAlive(false);
  signal?.removeEventListener("abort", abort);
  return true;
}

/**
 * Calls `lost` each time the holder loses the lock. Keeps neither of the two alive.
 *
 * @internal
 */
export function watch(holder: Holder, lost: () => void): void {
  const { queue, watched } = open();
  const id = queue.watch(holder);
  watched.set(id, () => {
    if (queue.take(id) === "gone") watched.delete(id);
    else lost();
  });
}
