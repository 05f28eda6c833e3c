import { setInterval } from "node:timers";
import { isMainThread } from "node:worker_threads";
import { type Failure, farewell, type Holder, Queue, type View } from "#native";
import { LockUnavailable, unwrap } from "./errors.js";

/** What `setInterval` takes at most. */
const LONGEST = 2 ** 31 - 1;

/** The queue of this environment and what is waited for. Made at the first call: importing starts nothing. */
interface Calls {
  readonly queue: Queue;
  /** By the id of a call: goes on with it. */
  readonly pending: Map<number, () => void>;
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
    if (isMainThread) process.once("exit", farewell);
  }
  return calls;
}

function wake(): void {
  const { queue, pending, watched } = open();
  for (const id of queue.drain()) {
    const goOn = pending.get(id) ?? watched.get(id);
    goOn?.();
  }
}

/**
 * Starts a call and waits for its result.
 *
 * The result is taken after the wait and in the same turn as the caller goes on, so that a lock is never won by a caller
 * who is gone. A signal ends the wait with the signal's reason, and what the call had won is released.
 *
 * @internal
 */
export async function call(
  start: (queue: Queue) => number | Failure,
  signal?: AbortSignal,
): Promise<View[] | undefined> {
  signal?.throwIfAborted();
  const { queue, pending, alive } = open();
  const id = unwrap(start(queue));
  const abort = (): void => {
    queue.cancel(id);
    pending.get(id)?.();
  };
  signal?.addEventListener("abort", abort, { once: true });
  if (pending.size === 0) alive.ref();
  try {
    for (;;) {
      await new Promise<void>((resolve) => pending.set(id, resolve));
      if (signal?.aborted) {
        // Again: someone else's listener may have kept the event from ours.
        queue.cancel(id);
        throw signal.reason;
      }
      const taken = unwrap(queue.take(id));
      if (taken === "gone") throw new LockUnavailable("the call was broken off, as the process is ending");
      if (taken !== "again") return taken ?? undefined;
    }
  } finally {
    // Not before: what is won and not taken yet must still be cancelled if the process ends here.
    pending.delete(id);
    if (pending.size === 0) alive.unref();
    signal?.removeEventListener("abort", abort);
  }
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
