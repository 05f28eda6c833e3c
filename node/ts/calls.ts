import { AsyncResource } from "node:async_hooks";
import { clearInterval, setInterval } from "node:timers";
import { runInThisContext } from "node:vm";
import { isMainThread } from "node:worker_threads";
import { type Failure, type Holder, Queue, shutdown, type View } from "#native";

/** The longest delay of `setInterval`. */
const LONGEST = 2 ** 31 - 1;

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
  /** Keeps the process alive while a call is pending; a held lock or an idle client does not. */
  alive: NodeJS.Timeout | undefined;
}

let calls: Calls | undefined;

// The queue lives as long as the process and keeps what it calls. A test runner loads this file once for each test file,
// in a realm that it wants to forget, so the function for the queue is of the realm of Node itself, and keeps its target
// no longer than the realm does.
const weakly: (target: () => void) => () => void = runInThisContext(
  "(target) => { const weak = new WeakRef(target); return () => weak.deref()?.(); }",
);

// The context of the import, and not that of the first call: the queue keeps what `AsyncLocalStorage` has in it, and
// listeners of signals would run in it.
const imported = new AsyncResource("redlock-rs");

function open(): Calls {
  if (calls === undefined) {
    calls = {
      queue: imported.runInAsyncScope(() => new Queue(weakly(wake))),
      pending: new Map(),
      watched: new Map(),
      alive: undefined,
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
  const opened = open();
  const { pending } = opened;
  // None while no call is pending, not even one that does not keep the process: it would keep the realm.
  opened.alive ??= setInterval(() => undefined, LONGEST);
  return new Promise((resolve, reject) => {
    const abort = (): void => void settle(id);
    pending.set(id, { resolve, reject, signal, abort });
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** Settles a call that is ready, aborted, or done without a result to take. Returns false if there is no such call. */
function settle(id: number, done = false): boolean {
  const opened = open();
  const { queue, pending } = opened;
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
  if (pending.size === 0) {
    clearInterval(opened.alive);
    opened.alive = undefined;
  }
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
