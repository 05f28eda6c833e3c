import { AsyncResource } from "node:async_hooks";
import { runInThisContext } from "node:vm";

/** What a native object keeps for the life of the process. */
interface Kept {
  readonly wake: () => void;
  /** Test runners ask whether the object keeps the process alive. */
  readonly hasRef: () => boolean;
}

// A test runner loads this file once for each test file, in a realm that it wants to forget. So what a native object
// keeps is of the realm of Node itself, and keeps its targets no longer than the realm does.
const weakly: (wake: () => void, isPending: () => boolean) => Kept = runInThisContext(`(...targets) => {
  const [wake, isPending] = targets.map((target) => new WeakRef(target));
  return { wake: () => wake.deref()?.(), hasRef: () => isPending.deref()?.() ?? false };
}`);

/**
 * Has `end` called when this thread ends. Does not keep it from being collected.
 *
 * All copies of this file share one listener, because Node warns of more than ten.
 *
 * @internal
 */
export const atExit: (end: () => void) => void = runInThisContext(`(end) => {
  const ends = (globalThis[Symbol.for("redlock-rs.ends")] ??= new Set());
  if (ends.size === 0) process.once("exit", () => ends.forEach((end) => end.deref()?.()));
  ends.add(new WeakRef(end));
}`);

// The context of the import, and not that of the first call: a native object keeps what `AsyncLocalStorage` has in it,
// and what it wakes would run in it.
class Import extends AsyncResource {
  hasRef(): boolean {
    return false;
  }
}
const imported = new Import("redlock-rs");

/**
 * Runs `body` in the context of the import, in which `AsyncLocalStorage` has nothing of any call.
 *
 * @internal
 */
export function outside(body: () => void): void {
  imported.runInAsyncScope(body);
}

/**
 * Makes a native object that calls `wake` from other threads. `isPending` says whether it keeps the process alive. It
 * keeps neither of the two from being collected.
 *
 * @internal
 */
export function wakeable<T>(
  Native: new (wake: () => void, resource: object) => T,
  wake: () => void,
  isPending: () => boolean,
): T {
  const kept = weakly(wake, isPending);
  return imported.runInAsyncScope(() => new Native(kept.wake, kept));
}
