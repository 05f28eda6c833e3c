import { setInterval } from "node:timers";
import { isMainThread } from "node:worker_threads";
import { type Failure, type Holder, Queue, shutdown, type View } from "#native";

/** What `setInterval` takes at most. */
const LONGEST = 2 ** 31 - 1;

/** A call that is waited for. */
interface Call {
  readonly resolve: (result: Result) => void;
  readonly reject: (reason: unknown) => void;
  readonly signal: AbortSignal | undefined;
  /** What listens to the signal. */
  readonly abort: () => void;
}

/** What comes of a call. A failure is thrown by who waits for it, so that its stack leads there. */
type Result = View[] | Failure | null;

const ENDING: Failure = {
  code: "unavailable",
  message: "the call was cancelled because the process is exiting",
  nodes: [],
};

/** The queue of this environment and what is waited for. Made at the first call: importing starts nothing. */
interface Calls {
  readonly queue: Queue;
  readonly pending: Map<number, Call>;
  /** By the id of a watch: tells of a loss. */
  readonly watched: Map<number, () => void>;
  /** Keeps the process alive while a call is pending; a held lock or an idle client does not. */
  readonly alive: NodeJS.Timeout;
}

let calls: Calls | undefined;

function open(): Calls {
  if (calls === undefined) {
    calls = {
      queue: new Queue(wake),
      pending: new Map(),
      watched: new Map(),
      alive: setInterval(() => undefined, LONGEST).unref(),
    };
    // A worker ends without the locks of other threads, and what it holds goes with its objects.
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
 * The queue, to start a call with; {@link outcome} waits for it, in the same turn.
 *
 * @internal
 */
export function queue(): Queue {
  return open().queue;
}

/**
 * Waits for the result of a call that was started. A signal ends the wait with the signal's reason, and what the call
 * had won is released.
 *
 * The result is taken in the turn in which the caller goes on, so that a lock is never won by a caller who is gone.
 *
 * @internal
 */
export function outcome(id: number, signal?: AbortSignal): Promise<Result> {
  const { pending, alive } = open();
  if (pending.size === 0) alive.ref();
  return new Promise((resolve, reject) => {
    const abort = (): void => void settle(id);
    pending.set(id, { resolve, reject, signal, abort });
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** Goes on with a call that is ready, aborted, or done with nothing to take; false if there is no such call. */
function settle(id: number, done = false): boolean {
  const { queue, pending, alive } = open();
  const call = pending.get(id);
  if (call === undefined) return false;
  const { resolve, reject, signal, abort } = call;
  try {
    // Asked here too: someone else's listener may have kept the event from ours.
    if (signal?.aborted) {
      queue.cancel(id);
      reject(signal.reason);
    } else {
      const taken = done ? null : queue.take(id);
      if (taken === "again") return true;
      resolve(taken === "gone" ? ENDING : taken);
    }
  } catch (error) {
    // A bug, which is this call's alone: the others of the batch go on.
    reject(error);
  }
  pending.delete(id);
  if (pending.size === 0) alive.unref();
  signal?.removeEventListener("abort", abort);
  return true;
}

/**
 * Calls `lost` each time the holder loses the lock. Keeps neither alive.
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
