/**
 * A distributed lock for Redis and Valkey, on one node or on a quorum of independent nodes (Redlock).
 *
 * @example
 * ```ts
 * import { lock } from "redlock-rs";
 *
 * await lock("foo").using(async (signal) => {
 *   // work; pass the signal on to calls that take one
 * });
 * ```
 *
 * @packageDocumentation
 */

import { type AttachOptions, type Diagnosis, type LockView, Redlock } from "./client.js";
import type { Nodes } from "./clients.js";
import type { Election, ElectionOptions } from "./election.js";
import type { Lock } from "./lock.js";
import { type Locked, wrap } from "./locked.js";
import type { ClientOptions, LockOptions, NameOptions } from "./options.js";

export {
  type AttachOptions,
  type Diagnosis,
  type Finding,
  type Level,
  type LockView,
  type NodeView,
  Redlock,
} from "./client.js";
export type { RedisClient } from "./clients.js";
export { Election, type ElectionOptions, type Leader } from "./election.js";
export {
  type ErrorCode,
  type ErrorDetails,
  LockAlreadyHeld,
  LockClosed,
  LockForbidden,
  LockInternal,
  LockInvalidArgument,
  LockLost,
  LockNotHeld,
  LockTimeout,
  LockUnavailable,
  type LostReason,
  type NodeAnswer,
  RedlockError,
} from "./errors.js";
export type { RedlockEvent } from "./events.js";
export { type AcquireOptions, Lock, type TryOptions } from "./lock.js";
export type { Locked, LockedOptions, NameOf } from "./locked.js";
export type { ClientOptions, Credentials, LockOptions, Login, NameOptions } from "./options.js";
export { countByName, type Histogram, type Metric, openMetrics, type Point, stats } from "./stats.js";

let client: Redlock | undefined;

/** Makes the client at its first use, so that the environment can be set after the import. */
function shared(): Redlock {
  client ??= new Redlock();
  return client;
}

/**
 * Sets the nodes and the options of the default client, which the functions of this module use. Without it, the nodes
 * come from `REDLOCK_URLS`, or the node is `redis://127.0.0.1:6379`.
 *
 * Locks that were made before keep their nodes and options, and their client is not closed. Functions from
 * {@link locked} use the new ones from their next call on.
 *
 * @throws {@link LockInvalidArgument}: a wrong address or option. The default client is then the former one.
 */
export function configure(nodes?: Nodes, options?: ClientOptions): void {
  client = new Redlock(nodes, options);
}

/**
 * Makes a lock of the default client, for `REDLOCK_URLS` or `redis://127.0.0.1:6379`; see {@link Redlock.lock}.
 *
 * @throws {@link LockInvalidArgument}: a wrong name or option, or a wrong address in `REDLOCK_URLS`.
 */
export function lock(name: string | Uint8Array, options?: NameOptions): Lock {
  return shared().lock(name, options);
}

/**
 * Makes a lock of several names of the default client: all of them, or none; see {@link Redlock.lockAll}.
 *
 * @throws {@link LockInvalidArgument}: wrong names, a wrong option, or a wrong address in `REDLOCK_URLS`.
 */
export function lockAll(names: readonly (string | Uint8Array)[], options?: LockOptions): Lock {
  return shared().lockAll(names, options);
}

/**
 * Makes a lock of the default client that as many can hold at once as there are permits; see {@link Redlock.semaphore}.
 *
 * @throws {@link LockInvalidArgument}: a wrong name, number of permits or option, or a wrong address in `REDLOCK_URLS`.
 */
export function semaphore(name: string | Uint8Array, permits: number, options?: LockOptions): Lock {
  return shared().semaphore(name, permits, options);
}

/**
 * Goes on with a detached lock, on the default client; see {@link Redlock.attach}.
 *
 * @throws {@link LockInvalidArgument}: a wrong text or option, or a wrong address in `REDLOCK_URLS`; and as
 * {@link Redlock.attach}.
 */
export async function attach(text: string, options?: AttachOptions): Promise<Lock> {
  return shared().attach(text, options);
}

/**
 * Makes an election of the default client; see {@link Redlock.election}.
 *
 * @throws {@link LockInvalidArgument}: a wrong name or option, or a wrong address in `REDLOCK_URLS`.
 */
export function election(name: string | Uint8Array, options?: ElectionOptions): Election {
  return shared().election(name, options);
}

/**
 * Wraps `fn`, so that each call runs under a fresh lock of the default client: two calls exclude each other, in this
 * process and all others.
 *
 * The returned function has the name, the parameters and `this` of `fn`. It releases the lock when the promise that
 * `fn` returned is settled.
 *
 * @param name - the name, the several names of one lock, or a function that makes it or them from the arguments of the
 * call.
 * @param options - of the locks, with `skipIfHeld` for jobs that run once, `permits` for more than one call at a time,
 * and `passLock` for a function that needs the fence. They are checked now.
 * @throws {@link LockInvalidArgument}: a wrong name or option, or a wrong address in `REDLOCK_URLS`. A call rejects with
 * what {@link Lock.using} throws.
 *
 * @example
 * ```ts
 * const pay = locked((user: string) => `user:${user}`, { ttl: 30_000, passLock: true }, async (lock, user: string) => {
 *   await charge(user, lock.fence);
 * });
 * await pay("ada");
 *
 * // On every server, but only one of them runs it.
 * const nightly = locked("cron:nightly", { skipIfHeld: true }, report);
 * ```
 */
export const locked: Locked = (name: unknown, ...rest: unknown[]) => {
  const before = client;
  try {
    return wrap(shared, name, ...rest);
  } finally {
    // Modules call this when they are imported, and the environment may be set after that.
    client = before;
  }
};

/**
 * Shows whose lock this name is, and what every node of the default client has; see {@link Redlock.inspect}.
 *
 * @throws {@link LockInvalidArgument}: a wrong name, or a wrong address in `REDLOCK_URLS`.
 */
export async function inspect(name: string | Uint8Array): Promise<LockView> {
  return shared().inspect(name);
}

/**
 * Shows whose the slots of a semaphore are on the nodes of the default client; see {@link Redlock.inspectSemaphore}.
 *
 * @throws {@link LockInvalidArgument}: a wrong name or number of permits, or a wrong address in `REDLOCK_URLS`.
 */
export async function inspectSemaphore(name: string | Uint8Array, permits: number): Promise<LockView[]> {
  return shared().inspectSemaphore(name, permits);
}

/**
 * Finds out what each node of the default client can do and may lose; see {@link Redlock.diagnose}.
 *
 * @throws {@link LockInvalidArgument}: a wrong address in `REDLOCK_URLS`.
 */
export async function diagnose(): Promise<Diagnosis[]> {
  return shared().diagnose();
}
