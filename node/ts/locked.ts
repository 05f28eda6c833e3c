/** Functions whose calls run under a lock. */

import { LockInvalidArgument, LockTimeout } from "./errors.js";
import type { Lock } from "./lock.js";
import type { NameOptions } from "./options.js";
import { BOOLEAN, COUNT, checked, NAME_OPTIONS, refuseGenerator } from "./validate.js";

/** The options of a function that runs under a lock: those of its locks, and its own. */
export interface LockedOptions<P extends boolean = false> extends NameOptions {
  /**
   * If others hold the lock, a call resolves to `undefined` and does not run the function; default false. It tries
   * once, unless `timeout` says how long to wait.
   */
  readonly skipIfHeld?: boolean | undefined;
  /**
   * How many calls may run at once, on all servers together: 1 to 1000. Each has one of the permits of a semaphore, and
   * with `passLock` its slot; see {@link Redlock.semaphore}. Left out, each call has the lock of this name.
   */
  readonly permits?: number | undefined;
  /**
   * Whether the function gets the lock before the arguments of the call; default false. TypeScript must see which: write
   * `passLock: true` in the call of `locked`, or write the options `as const`.
   */
  readonly passLock?: P | undefined;
}

/** The name of a lock, the several names of one, or a function that makes it or them from the arguments of a call. */
export type NameOf<A extends unknown[] = never[]> = Named | ((...args: A) => Named);

type Named = string | Uint8Array | readonly (string | Uint8Array)[];

type Skips<S extends boolean> = { readonly skipIfHeld?: S | undefined };
type Skipped<S extends boolean> = S extends true ? undefined : never;

/**
 * Wraps a function, so that each call runs under a fresh lock; see {@link locked}. What makes the name of a call may
 * leave out the last of its arguments, unless the types of these are not known yet, as within a decorator.
 */
export interface Locked {
  <A extends [...N, ...unknown[]], R, T, N extends unknown[] = A>(
    name: NameOf<N>,
    fn: (this: T, ...args: A) => R,
  ): (this: T, ...args: A) => Promise<Awaited<R>>;
  <A extends [...N, ...unknown[]], R, T, N extends unknown[] = A, S extends boolean = false>(
    name: NameOf<N>,
    options: LockedOptions<true> & Skips<S> & { readonly passLock: true },
    fn: (this: T, lock: Lock, ...args: A) => R,
  ): (this: T, ...args: A) => Promise<Awaited<R> | Skipped<S>>;
  <A extends [...N, ...unknown[]], R, T, N extends unknown[] = A, S extends boolean = false>(
    name: NameOf<N>,
    options: (LockedOptions & Skips<S>) | undefined,
    fn: (this: T, ...args: A) => R,
  ): (this: T, ...args: A) => Promise<Awaited<R> | Skipped<S>>;
  <A extends unknown[], R, T>(
    name: NameOf<A>,
    fn: (this: T, ...args: A) => R,
  ): (this: T, ...args: A) => Promise<Awaited<R>>;
  <A extends unknown[], R, T, S extends boolean = false>(
    name: NameOf<A>,
    options: LockedOptions<true> & Skips<S> & { readonly passLock: true },
    fn: (this: T, lock: Lock, ...args: A) => R,
  ): (this: T, ...args: A) => Promise<Awaited<R> | Skipped<S>>;
  <A extends unknown[], R, T, S extends boolean = false>(
    name: NameOf<A>,
    options: (LockedOptions & Skips<S>) | undefined,
    fn: (this: T, ...args: A) => R,
  ): (this: T, ...args: A) => Promise<Awaited<R> | Skipped<S>>;
}

/** What makes the locks. */
interface Client {
  lock(name: string | Uint8Array, options: NameOptions): Lock;
  lockAll(names: readonly (string | Uint8Array)[], options: NameOptions): Lock;
  semaphore(name: string | Uint8Array, permits: number, options: NameOptions): Lock;
}

type Call = (this: unknown, ...args: unknown[]) => unknown;

/**
 * Wraps `fn`; see {@link locked}. Each call asks for the `client`. The types of the arguments are checked here, because
 * JavaScript does not.
 *
 * @internal
 */
// biome-ignore lint/suspicious/noExplicitAny: the overloads of `Locked` say what it returns.
export function wrap(client: () => Client, name: unknown, ...rest: unknown[]): any {
  const [options, fn] = rest.length === 1 ? [undefined, rest[0]] : rest;
  if (typeof fn !== "function") throw new LockInvalidArgument("locked(name, options, fn) takes the function last");
  refuseGenerator("fn", fn);
  const kinds = { ...NAME_OPTIONS, permits: COUNT, skipIfHeld: BOOLEAN, passLock: BOOLEAN };
  const given =
    checked(options as LockedOptions<boolean> | undefined, kinds, "{ ttl: 10_000, skipIfHeld: true }") ?? {};
  const { permits, skipIfHeld = false, passLock = false, ...own } = given;
  const lockOptions: NameOptions = skipIfHeld ? { timeout: 0, ...own } : own;
  const make = (named: unknown): Lock => {
    if (permits !== undefined) return client().semaphore(named as string, permits, lockOptions);
    return Array.isArray(named) ? client().lockAll(named, lockOptions) : client().lock(named as string, lockOptions);
  };
  // Wrong options are refused now, and not at the first call.
  make(typeof name === "function" ? "name" : name);
  const call = async function (this: unknown, ...args: unknown[]): Promise<unknown> {
    const lock = make(typeof name === "function" ? name.apply(undefined, args) : name);
    try {
      await lock.acquire();
    } catch (error) {
      if (skipIfHeld && error instanceof LockTimeout) return undefined;
      throw error;
    }
    return await lock.hold(() => (fn as Call).apply(this, passLock ? [lock, ...args] : args));
  };
  // Express takes a function of four parameters for a handler of errors, and logs show the name.
  const length = passLock ? Math.max(fn.length - 1, 0) : fn.length;
  const looks = { name: { value: fn.name, configurable: true }, length: { value: length, configurable: true } };
  return Object.defineProperties(call, looks);
}
