import { types } from "node:util";
import type { Failure } from "#native";

/** What one node answered. */
export interface NodeAnswer {
  /** The node's address without user name or password. */
  readonly node: string;
  /** Its answer, in a few words: `held`, `no answer within 500 ms`, `refused: READONLY`. */
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
  | "closed"
  | "invalid_argument"
  | "internal";

/**
 * Why a held lock was lost: its validity ended (`expired`), a quorum showed another owner (`taken`), no quorum answered
 * the renewals in time (`unreachable`), it reached `maxHold` (`max_hold`), or its keys were deleted before they expired
 * (`deleted`).
 */
export type LostReason = "expired" | "taken" | "unreachable" | "max_hold" | "deleted";

/** The details of an error, besides its message. */
export interface ErrorDetails {
  readonly lockName?: string | undefined;
  readonly nodes?: readonly NodeAnswer[] | undefined;
  readonly cause?: unknown;
}

/** The base class of the errors of this package. Types show it as {@link RedlockError}. */
abstract class Base extends Error {
  /** The stable code. */
  abstract readonly code: ErrorCode;
  /**
   * The lock's name, or its names joined with ", ", with invalid UTF-8 replaced; undefined if the error is not about one
   * lock.
   */
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

/** Others held the lock until the timeout. Try again later, or wait longer. */
export class LockTimeout extends Base {
  readonly code = "timeout";
  /** The label of the holder, if it has one. This and the rest is what the last look at the nodes has shown. */
  readonly holderLabel: string | undefined;
  /** How long the holder's key lasts without another renewal, in milliseconds, if that is known. */
  readonly holderTtlLeft: number | undefined;
  /** Whether this process holds the lock itself. */
  readonly heldByThisProcess: boolean;

  constructor(
    message: string,
    details: ErrorDetails & {
      readonly holderLabel?: string | undefined;
      readonly holderTtlLeft?: number | undefined;
      readonly heldByThisProcess?: boolean | undefined;
    } = {},
  ) {
    super(message, details);
    this.holderLabel = details.holderLabel;
    this.holderTtlLeft = details.holderTtlLeft;
    this.heldByThisProcess = details.heldByThisProcess ?? false;
  }

  override get retryable(): boolean {
    return true;
  }
}

/**
 * No quorum of nodes could be asked or answered: nodes refused, hung, were loading, read-only, out of memory, or in
 * quarantine after a restart. Whether the lock is free is unknown.
 */
export class LockUnavailable extends Base {
  readonly code = "unavailable";

  override get retryable(): boolean {
    return true;
  }
}

/** Nodes that refuse these credentials or rights (NOAUTH, WRONGPASS, NOPERM) rule out a quorum. */
export class LockForbidden extends Base {
  readonly code = "forbidden";
}

/** The lock was held and is lost; `reason` says why. */
export class LockLost extends Base {
  readonly code = "lost";
  /** Why it was lost. */
  readonly reason: LostReason;

  constructor(message: string, details: ErrorDetails & { readonly reason: LostReason }) {
    super(message, details);
    this.reason = details.reason;
  }
}

/** The lock is not held, so it cannot be extended, checked or released. */
export class LockNotHeld extends Base {
  readonly code = "not_held";
}

/**
 * This lock object already holds the lock, is acquiring it, or lost it in a body that has not ended; make a lock for each
 * use.
 */
export class LockAlreadyHeld extends Base {
  readonly code = "already_held";
}

/** The client is closed, or was closed while the lock was held: others may have had the lock since then. */
export class LockClosed extends Base {
  readonly code = "closed";
}

/** A bug in redlock; please report it. What the call acquired was released. */
export class LockInternal extends Base {
  readonly code = "internal";
}

/** An option, a name or an address is wrong. Nothing was sent. The cause is a `TypeError`. */
export class LockInvalidArgument extends Base {
  readonly code = "invalid_argument";
  /** The option or argument that is wrong, such as `ttl`; undefined if the error is not about one. */
  readonly option: string | undefined;

  constructor(message: string, details: ErrorDetails & { readonly option?: string | undefined } = {}) {
    super(message, { ...details, cause: details.cause ?? new TypeError(message) });
    this.option = details.option;
  }
}

/**
 * An error of this package; for `instanceof`, the base class of all of them. The message says what happened, on which
 * lock, what each node answered and what to do next. It never contains a password or a token.
 *
 * Branch on the class or on `code`, which tells TypeScript the class. A call that an `AbortSignal` ends rejects with the
 * signal's own reason instead.
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
export type RedlockError =
  | LockTimeout
  | LockUnavailable
  | LockForbidden
  | LockLost
  | LockNotHeld
  | LockAlreadyHeld
  | LockClosed
  | LockInternal
  | LockInvalidArgument;

// TypeScript makes one of the classes of `instanceof RedlockError`. Programs have nothing to construct it with.
export const RedlockError = Base as unknown as { new (never: never): RedlockError; readonly prototype: RedlockError };

Object.defineProperty(Base, "name", { value: "RedlockError" });

// The names are on the prototypes, as that of `Error` is: the stack is made before the instance has any field.
for (const [name, { prototype }] of Object.entries({
  RedlockError,
  LockTimeout,
  LockUnavailable,
  LockForbidden,
  LockLost,
  LockNotHeld,
  LockAlreadyHeld,
  LockClosed,
  LockInvalidArgument,
  LockInternal,
})) {
  Object.defineProperty(prototype, "name", { value: name, configurable: true, writable: true });
}

/**
 * Makes the loss of a lock the cause of what its body has thrown, if that is an error without a cause, and not a loss.
 *
 * @internal
 */
export function noteLoss(thrown: unknown, lost: unknown): void {
  const isError = thrown instanceof Error || types.isNativeError(thrown);
  if (!(lost instanceof LockLost) || !isError || thrown instanceof LockLost) return;
  if (thrown.cause !== undefined || !Object.isExtensible(thrown)) return;
  Object.defineProperty(thrown, "cause", { value: lost, configurable: true, writable: true });
}

/** How many thrown values are kept, over all clients. The cause of an error is only a text if its value is older. */
const KEPT = 32;

/** The last values that credentials providers threw, by their numbers. */
const kept = new Map<number, unknown>();
let lastKept = 0;

/**
 * Keeps what a credentials provider threw, for the cause of errors, and returns its number.
 *
 * @internal
 */
export function keepThrown(thrown: unknown): number {
  lastKept += 1;
  kept.set(lastKept, thrown);
  kept.delete(lastKept - KEPT);
  return lastKept;
}

function causeOf({ cause, thrown }: Failure): unknown {
  const value = thrown === undefined ? undefined : kept.get(thrown);
  return value === undefined && cause !== undefined ? new Error(cause) : value;
}

/**
 * Makes the error for a failure of a native call. The awaiting function calls this, so that the stack leads there.
 *
 * @internal
 */
export function errorOf(failure: Failure): RedlockError {
  const { code, message, lockName, nodes, reason, option, cause } = failure;
  const { holderLabel, holderTtlLeft, heldByThisProcess } = failure;
  const details: ErrorDetails = { lockName, nodes, cause: causeOf(failure) };
  switch (code) {
    case "timeout":
      return new LockTimeout(message, { ...details, holderLabel, holderTtlLeft, heldByThisProcess });
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
    case "closed":
      return new LockClosed(message, details);
    case "internal":
      return new LockInternal(message, details);
    case "invalid_argument":
      return new LockInvalidArgument(message, { ...details, option, cause: new TypeError(cause ?? message) });
  }
}

/**
 * Returns the value, or throws the failure in its place as an error.
 *
 * @internal
 */
export function unwrap<T>(result: T | Failure): T {
  if (typeof result === "object" && result !== null && "code" in result) throw errorOf(result);
  return result;
}
