import type { Failure } from "#native";

/** What one node answered. */
export interface NodeAnswer {
  /** The node's address without user name or password. */
  readonly node: string;
  /** What it said, in a few words: `held by another`, `no answer within 500 ms`, `refused: READONLY`. */
  readonly answer: string;
}

/** The stable code of an error, the same in Rust, Python and Node. */
export type ErrorCode =
  | "timeout"
  | "unavailable"
  | "forbidden"
  | "lost"
  | "not_held"
  | "already_held"
  | "invalid_argument";

/**
 * Why a held lock was lost: its validity ended (`expired`), a quorum showed another owner (`taken`), no quorum answered
 * the renewals in time (`unreachable`), it was kept for as long as `maxHold` allows (`max_hold`), or its keys were gone
 * before their time (`deleted`).
 */
export type LostReason = "expired" | "taken" | "unreachable" | "max_hold" | "deleted";

/** What an error knows besides its message. */
export interface ErrorDetails {
  readonly lockName?: string | undefined;
  readonly nodes?: readonly NodeAnswer[] | undefined;
  readonly cause?: unknown;
}

/**
 * What every error of this package is. The message says what happened, on which lock, what each node answered and what
 * to do next; it never contains a password or a token.
 *
 * Branch on the class or on `code`. What an `AbortSignal` rejects with is the signal's own reason and none of these.
 *
 * @example
 * ```ts
 * try {
 *   await redlock.lock("report", { timeout: 500 }).using(work);
 * } catch (error) {
 *   if (!(error instanceof RedlockError && error.retryable)) throw error;
 *   tryLater();
 * }
 * ```
 */
export abstract class RedlockError extends Error {
  /** The stable code. */
  abstract readonly code: ErrorCode;
  /** The name of the lock, bytes that are no UTF-8 replaced; undefined where no lock is concerned. */
  readonly lockName: string | undefined;
  /** What each node answered in the last round, in the order in which the nodes were given. */
  readonly nodes: readonly NodeAnswer[];

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.lockName = details.lockName;
    this.nodes = details.nodes ?? [];
  }

  /** Whether the same call may succeed later without a change to the program or its rights. */
  get retryable(): boolean {
    return false;
  }
}

/** Others held the lock until the timeout was over. Try again later, or wait longer. */
export class LockTimeout extends RedlockError {
  readonly code = "timeout";

  override get retryable(): boolean {
    return true;
  }
}

/**
 * No quorum of nodes could be asked, or would answer: refused, hung, loading, read-only, out of memory, quarantined after a
 * restart. The lock may be free; nobody can tell.
 */
export class LockUnavailable extends RedlockError {
  readonly code = "unavailable";

  override get retryable(): boolean {
    return true;
  }
}

/** A quorum is ruled out by nodes that refuse these credentials or rights (NOAUTH, WRONGPASS, NOPERM). */
export class LockForbidden extends RedlockError {
  readonly code = "forbidden";
}

/** The lock was held and is not any more; `reason` says why. */
export class LockLost extends RedlockError {
  readonly code = "lost";
  /** Why it was lost. */
  readonly reason: LostReason;

  constructor(message: string, details: ErrorDetails & { readonly reason: LostReason }) {
    super(message, details);
    this.reason = details.reason;
  }
}

/** The lock is not held, so it cannot be extended, checked or released. */
export class LockNotHeld extends RedlockError {
  readonly code = "not_held";
}

/** This lock object holds the lock already, or is about to; one object is one holder. */
export class LockAlreadyHeld extends RedlockError {
  readonly code = "already_held";
}

/** An option, a name or an address is wrong. Nothing was sent. The cause is a `TypeError`. */
export class LockInvalidArgument extends RedlockError {
  readonly code = "invalid_argument";
  /** The option or argument that is wrong, such as `ttl`; undefined where the failure is not about one. */
  readonly option: string | undefined;

  constructor(message: string, details: ErrorDetails & { readonly option?: string | undefined } = {}) {
    super(message, { ...details, cause: details.cause ?? new TypeError(message) });
    this.option = details.option;
  }
}

// On the prototypes, where `Error` has its own: the stack is made before any field of the instance is there.
for (const [name, { prototype }] of Object.entries({
  RedlockError,
  LockTimeout,
  LockUnavailable,
  LockForbidden,
  LockLost,
  LockNotHeld,
  LockAlreadyHeld,
  LockInvalidArgument,
})) {
  Object.defineProperty(prototype, "name", { value: name, configurable: true, writable: true });
}

/**
 * The error for what a native call said. Made where the caller awaits, so that its stack leads there.
 *
 * @internal
 */
export function errorOf({ code, message, lockName, nodes, reason, option, cause }: Failure): RedlockError {
  const details: ErrorDetails = { lockName, nodes, cause: cause === undefined ? undefined : new Error(cause) };
  switch (code) {
    case "timeout":
      return new LockTimeout(message, details);
    case "unavailable":
      return new LockUnavailable(message, details);
    case "forbidden":
      return new LockForbidden(message, details);
    case "lost":
      return new LockLost(message, { ...details, reason: reason ?? "expired" });
    case "not_held":
      return new LockNotHeld(message, details);
    case "already_held":
      return new LockAlreadyHeld(message, details);
    case "invalid_argument":
      return new LockInvalidArgument(message, { ...details, option, cause: new TypeError(cause ?? message) });
  }
}

/**
 * The value, or the failure in its place thrown as an error.
 *
 * @internal
 */
export function unwrap<T>(result: T | Failure): T {
  if (typeof result === "object" && result !== null && "code" in result) throw errorOf(result);
  return result;
}
