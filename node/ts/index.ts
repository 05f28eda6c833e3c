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

import { type LockOptions, type NodeView, Redlock } from "./client.js";
import type { Lock } from "./lock.js";

export { type ClientOptions, type LockOptions, type NodeView, Redlock } from "./client.js";
export {
  type ErrorCode,
  type ErrorDetails,
  LockAlreadyHeld,
  LockForbidden,
  LockInvalidArgument,
  LockLost,
  LockNotHeld,
  LockTimeout,
  LockUnavailable,
  type LostReason,
  type NodeAnswer,
  RedlockError,
} from "./errors.js";
export { type AcquireOptions, Lock, type TryOptions } from "./lock.js";

let client: Redlock | undefined;

/** Makes the client at its first use, so that the environment can be set after the import. */
function shared(): Redlock {
  client ??= new Redlock();
  return client;
}

/**
 * Makes a lock of the default client, for `REDLOCK_URLS` or `redis://127.0.0.1:6379`; see {@link Redlock.lock}.
 *
 * @throws {@link LockInvalidArgument}: a wrong name or option, or a wrong address in `REDLOCK_URLS`.
 */
export function lock(name: string | Uint8Array, options?: LockOptions): Lock {
  return shared().lock(name, options);
}

/**
 * Shows what every node of the default client has under this name; see {@link Redlock.inspect}.
 *
 * @throws {@link LockInvalidArgument}: a wrong name, or a wrong address in `REDLOCK_URLS`.
 */
export async function inspect(name: string | Uint8Array): Promise<NodeView[]> {
  return shared().inspect(name);
}
