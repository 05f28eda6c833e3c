/// <reference lib="esnext.disposable" preserve="true" />
import { TextDecoder } from "node:util";
import {
  acquire,
  beginBody,
  check,
  type Detached,
  detach,
  dropLock,
  enterAttached,
  extend,
  fence,
  held,
  isLocked,
  type LockView,
  makeLock,
  names,
  release,
  remaining,
  type Started,
  slot,
  view,
  waitLost,
  watch,
} from "#native";
import { onLoss, outcome, queue } from "./calls.js";
import type { Provider } from "./credentials.js";
import { type ErrorCode, errorOf, LockInvalidArgument, LockLost, LockTimeout, noteLoss, unwrap } from "./errors.js";
import type { Template } from "./template.js";
import {
  checked,
  expect,
  type Given,
  isSignal,
  type Kinds,
  MILLISECONDS,
  MILLISECONDS_OR_NULL,
  type Name,
  refuseGenerator,
  SIGNAL,
} from "./validate.js";

/** How one acquire waits. */
export interface AcquireOptions {
  /**
   * How long to wait, in milliseconds: 0 is one try, `null` waits forever, as do `Infinity` and -1. Default: the
   * lock's own timeout.
   */
  readonly timeout?: number | null | undefined;
  /** Aborting it cancels the acquire. It has no effect once the lock is acquired. */
  readonly signal?: AbortSignal | undefined;
}

/** How one try can be cancelled. */
export interface TryOptions {
  /** Aborting it cancels the try. */
  readonly signal?: AbortSignal | undefined;
}

export const ACQUIRE: Kinds = { timeout: MILLISECONDS_OR_NULL, signal: SIGNAL };
const TRY: Kinds = { signal: SIGNAL };
const NOTHING: Given<AcquireOptions> = {};
export const HOW = "{ timeout: 500, signal: controller.signal }";
const HOW_TO_TRY = "{ signal: controller.signal }";

/** Checks how a call waits. */
export function given<T extends object>(
  options: T | AbortSignal | undefined,
  kinds: Kinds,
  example: string,
): Given<AcquireOptions> {
  if (options === undefined) return NOTHING;
  return isSignal(options) ? { signal: options } : (checked(options, kinds, example) ?? NOTHING);
}

/** The first releases of Node 20 lack it. */
export const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");
export const inspect = Symbol.for("nodejs.util.inspect.custom");

/** The number of the last native object. */
let lastNumber = 0;
/** Drops the native object of a lock that is garbage-collected. A held lock stays held. */
const collected = new FinalizationRegistry<number>((number) => dropLock(queue(), number));

const UTF_8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** `structuredClone` refuses an object with a symbol among its values, and its error shows the symbol. */
const UNCLONEABLE = Symbol("a lock is one holder and cannot be copied; make another with its name where it is needed");

/** Keeps a lock alive while its signal is in use, which nothing would abort otherwise. */
const holders = new WeakMap<AbortSignal, Lock>();
/** The locks whose bodies run. A body that only waits for its signal would otherwise be garbage, and its lock too. */
const entered = new Set<Lock>();

/**
 * A lock by name, made by {@link Redlock.lock}. {@link Redlock.lockAll} makes one of several names, and
 * {@link Redlock.semaphore} one that others can hold too.
 *
 * One object is one holder: acquiring it while it is held fails with `already_held`, and two objects of one name
 * exclude each other, in one process too. It can be acquired again after it was released or lost, but not within a body
 * that has lost it.
 *
 * Keep the object until the release. A lock whose object is garbage-collected stays held and renewed, with a warning of
 * the process, because nothing can release it any more. A held lock does not keep the process alive. It is released
 * when its worker or the process ends by itself or by `process.exit`, as far as the servers answer within 500 ms.
 *
 * @example
 * ```ts
 * const lock = redlock.lock("invoice:17", { timeout: 5_000 });
 * await lock.acquire();
 * try {
 *   await store(invoice, lock.fence); // the resource refuses smaller fences
 * } finally {
 *   await lock.release();
 * }
 * ```
 */
export class Lock {
  /** @internal */
  readonly uncloneable = UNCLONEABLE;
  /** The number of the native object; 0 before there was any. */
  #number = 0;
  /** Whether the native object exists. A call makes it, and a release drops it. */
  #exists = false;
  #released = false;
  readonly #template: Template;
  /** The name, or the several names as they were given. */
  readonly #name: Name | Name[];
  /** Kept alive here, because the client may be gone before its locks. */
  readonly #provider: Provider | undefined;
  #controller: AbortController | undefined;
  #watched = false;

  private constructor(template: Template, name: Name | Name[], provider: Provider | undefined) {
    // JavaScript can call it with anything.
    if (typeof (template as Template | undefined)?.native !== "object") {
      throw new LockInvalidArgument(
        'a client makes locks: redlock.lock("name"), or lock("name") with the default client',
      );
    }
    this.#template = template;
    // Bytes may change later.
    this.#name = typeof name !== "string" && ArrayBuffer.isView(name) ? new Uint8Array(name) : name;
    this.#provider = provider;
  }

  /** @internal */
  static of(template: Template, name: Name | Name[], provider: Provider | undefined): Lock {
    return new Lock(template, name, provider);
  }

  /** @internal */
  static numberOf(lock: Lock): number {
    return lock.#object();
  }

  /** @internal */
  static tell(lock: Lock): void {
    lock.#tell();
  }

  /** The name, with invalid UTF-8 replaced if it was given as bytes. Several names are joined with ", ". */
  get name(): string {
    if (typeof this.#name === "string") return this.#name;
    return ArrayBuffer.isView(this.#name) ? UTF_8.decode(this.#name) : this.names.join(", ");
  }

  /**
   * The names of {@link Redlock.lockAll}, each once and in the order of their bytes, with invalid UTF-8 replaced. Other
   * locks have one.
   */
  get names(): readonly string[] {
    const isOne = typeof this.#name === "string" || ArrayBuffer.isView(this.#name);
    return isOne ? [this.name] : names(queue(), this.#object());
  }

  /**
   * The slot of a semaphore that this hold has: from 0 to the number of permits less one, one holder for each. A lost
   * lock still has the slot of its last hold. It is `null` before an acquire and after a release, and for all other
   * locks.
   *
   * @example
   * ```ts
   * await redlock.semaphore("gpu", 4).using(async (signal, { slot }) => {
   *   await train({ device: `cuda:${slot}`, signal });
   * });
   * ```
   */
  get slot(): number | null {
    return slot(queue(), this.#object());
  }

  /**
   * The fencing token: larger than every fence of this name before it. Send it along with every access to the protected
   * resource, which must remember the largest and refuse smaller ones. It is a safe integer. A lost lock still has the
   * fence of its last hold.
   *
   * Several names have one fence, larger than every one before it of each name. Of a semaphore, each slot has its own:
   * a resource compares the fences of one {@link Lock.slot}.
   *
   * @throws {@link LockNotHeld} before an acquire and after a release.
   * @throws {@link LockInvalidArgument}: the protocol `"setnx"` has no fence.
   */
  get fence(): number {
    return unwrap(fence(queue(), this.#object()));
  }

  /** Whether the lock is held at this moment. Each call compares the clock with the end of the validity. */
  get held(): boolean {
    return held(queue(), this.#object());
  }

  /** How long the lock can still be relied on without another renewal, in milliseconds; 0 when it is not held. */
  get remaining(): number {
    return remaining(queue(), this.#object());
  }

  /**
   * A local timer aborts the signal with the {@link LockLost} when the lock is lost, without waiting for any server.
   * Only a busy event loop delays it. A release does not abort it.
   *
   * The signal belongs to the present hold, or if there is none, to the next one: every acquisition has its own signal.
   * If it is first read after the loss, and before a release or another acquire, it is aborted already, with the same
   * error. A reference to the signal keeps the lock object alive. A listener on it does not keep the process alive;
   * {@link Lock.lost} does.
   *
   * @example
   * ```ts
   * await lock.acquire();
   * const answer = await fetch(url, { signal: lock.signal });
   * ```
   */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      holders.set(this.#controller.signal, this);
      this.#watch();
    }
    this.#tell();
    return this.#controller.signal;
  }

  /**
   * Acquires the lock, waiting until the timeout, and resolves to the lock itself.
   *
   * A pending acquire keeps the process alive.
   *
   * @param options - how to wait, or only the signal.
   * @returns the lock, for `await using held = await lock.acquire()`.
   * @throws {@link LockTimeout}: others held it until the timeout, or that was too short for an answer of nodes that
   * answer other calls.
   * @throws {@link LockUnavailable}: no quorum of nodes could be asked or answered until the timeout, or for 10 s if
   * none is set.
   * @throws {@link LockForbidden}: nodes that refuse the credentials or rights rule out a quorum.
   * @throws {@link LockAlreadyHeld}: this object holds the lock, or is acquiring it.
   * @throws {@link LockInvalidArgument}: a wrong option, too many addresses of one server, or several names in different
   * slots of a Redis Cluster.
   * @throws {@link LockClosed}: the client is closed.
   * @throws the signal's reason, at once when `signal` is aborted. The attempt then leaves no key behind. If `signal`
   * is aborted already, nothing is sent. An abort after the lock was acquired does nothing.
   *
   * @example
   * ```ts
   * await lock.acquire({ timeout: 2_000, signal: AbortSignal.any([request.signal, shutdown]) });
   * ```
   */
  async acquire(options?: AcquireOptions | AbortSignal): Promise<this> {
    const { timeout, signal } = given(options, ACQUIRE, HOW);
    unwrap(await this.#begin(timeout, signal));
    return this;
  }

  /**
   * Tries once, whatever timeout the lock has.
   *
   * Takes at most the client's `connectTimeout` and twice the `nodeTimeout`; of a semaphore, five times the
   * `nodeTimeout`, because it looks for a free slot once.
   *
   * @returns whether the lock was acquired; `false` if others hold it, or were taking it at the same time.
   * @throws as {@link Lock.acquire}, except {@link LockTimeout}.
   *
   * @example
   * ```ts
   * if (await lock.tryAcquire()) {
   *   try {
   *     await work();
   *   } finally {
   *     await lock.release();
   *   }
   * }
   * ```
   */
  async tryAcquire(options?: TryOptions | AbortSignal): Promise<boolean> {
    const { signal } = given(options, TRY, HOW_TO_TRY);
    try {
      unwrap(await this.#begin(0, signal));
      return true;
    } catch (error) {
      if (error instanceof LockTimeout && error !== signal?.reason) return false;
      throw error;
    }
  }

  /**
   * Extends the lock now. With `autoRenew`, which is the default, the background renews it and this is seldom needed.
   *
   * @param ttl - how long the lock lasts from now on, in milliseconds, 100 to 86 400 000. It never shortens the time
   * that is left. Later renewals use it too. Default: the ttl in force.
   * @throws {@link LockLost}: the lock was lost before, or this call finds it lost.
   * @throws {@link LockUnavailable}: no quorum of nodes answered; the lock stays valid for as long as it was.
   * @throws {@link LockNotHeld}: the lock is not held.
   * @throws {@link LockInvalidArgument}: a wrong ttl, or the protocol `"setnx"`, which cannot extend.
   */
  async extend(ttl?: number): Promise<void> {
    if (ttl !== undefined) expect("ttl", ttl, MILLISECONDS);
    const id = unwrap(extend(queue(), this.#object(), ttl));
    unwrap(await outcome(id));
  }

  /**
   * Ends this hold without a release, and resolves to a text with which {@link Redlock.attach} goes on with it, in this
   * program or in another, also in Rust or Python. Nobody renews the lock until then: the servers keep it for what is
   * left of its ttl. The fence stays the same, as does the time since it was acquired, for `maxHold` and `atLeast`.
   *
   * The text is a credential: whoever has it can take the lock. It has neither addresses nor passwords.
   *
   * @param ttl - for how long the servers keep the lock from now on, in milliseconds, 100 to 86 400 000: it is extended
   * before. That never shortens the time that is left. Later renewals use the ttl that they had. Default: what is left.
   * @throws {@link LockLost}: the lock was lost before, or the extension finds it lost.
   * @throws {@link LockUnavailable}: no quorum of nodes answered the extension, and the lock is held as before; or a node
   * has not answered an acquire of a shared lock, which is held as before, or was released: see {@link Lock.held}.
   * @throws {@link LockNotHeld}: the lock is not held.
   * @throws {@link LockInvalidArgument}: a wrong ttl, the term of an election, or the protocol `"setnx"`: such locks
   * cannot be detached.
   *
   * @example
   * ```ts
   * await lock.acquire();
   * await jobs.add("report", { id: 17, lock: await lock.detach(600_000) });
   * ```
   */
  async detach(ttl?: number): Promise<string> {
    if (ttl !== undefined) expect("ttl", ttl, MILLISECONDS);
    const id = unwrap(detach(queue(), this.#object(), ttl));
    const { text } = unwrap(await outcome(id)) as Detached;
    this.#controller = undefined;
    return text;
  }

  /**
   * Releases the lock. It is not held from the call on, whatever the result. The background does what is left to do.
   * Releasing again does nothing. With `atLeast`, the nodes may keep the key for a while.
   *
   * @throws {@link LockLost}: the lock was lost before, so another holder may have had it meanwhile.
   * @throws {@link LockUnavailable}: no quorum of nodes confirmed it within `nodeTimeout`, or within 250 ms if that is
   * longer, plus the client's `connectTimeout` if connections have to be made; the background continues the release.
   * @throws {@link LockNotHeld}: this object never acquired it.
   * @throws {@link LockClosed}: the client was closed while the lock was held, so another holder may have had it since.
   */
  async release(): Promise<void> {
    await this.#end(false);
  }

  /**
   * Throws unless the lock is held at this moment. Sends nothing: it compares the clock with the end of the validity.
   *
   * @throws {@link LockLost} with its reason.
   * @throws {@link LockNotHeld} before an acquire and after a release.
   */
  check(): void {
    const failure = check(queue(), this.#object());
    if (failure !== null) throw errorOf(failure);
  }

  /**
   * Asks the nodes whether anybody holds the lock, this program included: whether an acquire would have to wait now. Of
   * several names, it is enough that one is held. A semaphore is locked while none of its slots is free.
   *
   * Keys of other libraries and of an attempt under way count too. The answer may be out of date when it arrives, so it
   * is for people and dashboards; to acquire a free lock, call {@link Lock.tryAcquire}.
   *
   * @throws {@link LockUnavailable} or {@link LockForbidden}: too few nodes answer to know.
   * @throws {@link LockInvalidArgument}: the protocol `"setnx"`, whose keys may be out of date.
   * @throws {@link LockClosed}: the client is closed.
   */
  async isLocked(): Promise<boolean> {
    this.#provider?.refuseOwn();
    const id = unwrap(isLocked(queue(), this.#object()));
    return unwrap(await outcome(id)) === "locked";
  }

  /** Whose it is, for an election. @internal */
  async view(): Promise<LockView> {
    this.#provider?.refuseOwn();
    const id = unwrap(view(queue(), this.#object()));
    const [seen] = unwrap(await outcome(id)) as [LockView];
    return seen;
  }

  /**
   * Waits for the end of the present hold: resolves to the {@link LockLost} if the lock is lost, and to `undefined` if
   * it is released. A loss that happened before the call counts, until the lock is released or acquired again.
   *
   * A pending call keeps the process and the lock object alive, which a listener on the {@link Lock.signal} does not.
   *
   * @throws {@link LockNotHeld}: the lock is not held.
   *
   * @example
   * ```ts
   * await using held = await lock.acquire();
   * const loss = await held.lost();
   * if (loss !== undefined) process.exitCode = 1;
   * ```
   */
  async lost(): Promise<LockLost | undefined> {
    const id = unwrap(waitLost(queue(), this.#object()));
    try {
      unwrap(await outcome(id));
    } catch (error) {
      if (error instanceof LockLost) return error;
      throw error;
    }
    return undefined;
  }

  /**
   * Acquires the lock, runs `body`, and releases the lock when the body's promise is settled. The first body of a lock
   * from {@link Redlock.attach} goes on with its hold.
   *
   * The body is not stopped when the lock is lost: pass its signal on to what it awaits, or call {@link Lock.check}
   * before each step.
   *
   * @param body - gets the lock's {@link Lock.signal} and the lock.
   * @param options - how to wait for the lock; they have no effect once the body runs.
   * @returns what the body returned.
   * @throws what the body threw, in preference to all errors below. If the lock was lost meanwhile, the
   * {@link LockLost} is the `cause` of that error, unless it has one.
   * @throws {@link LockLost}: the lock was lost while the body ran, or, if it was attached, before its first body.
   * @throws {@link LockClosed}: its client was closed while the body ran.
   * @throws as {@link Lock.acquire}; the body did not run then.
   *
   * @example
   * ```ts
   * const page = await lock.using(async (signal, { fence }) => {
   *   const answer = await fetch(url, { signal });
   *   return save(await answer.text(), fence);
   * });
   * ```
   */
  async using<T>(
    body: (signal: AbortSignal, lock: this) => T | PromiseLike<T>,
    options?: AcquireOptions | AbortSignal,
  ): Promise<T> {
    if (typeof body !== "function") {
      throw new LockInvalidArgument("using(body, options) takes the function first; a ttl is an option of the lock");
    }
    refuseGenerator("body", body);
    const goesOn = this.#exists && unwrap(enterAttached(queue(), this.#number));
    if (!goesOn) await this.acquire(options);
    return await this.hold(() => body(this.signal, this));
  }

  /**
   * Runs the body of a lock that was acquired, then releases the lock.
   *
   * @internal
   */
  async hold<T>(body: () => T | PromiseLike<T>): Promise<T> {
    let result: T;
    beginBody(queue(), this.#object());
    entered.add(this);
    try {
      result = await body();
    } catch (error) {
      // The body's own error says more than the loss of the lock, and may be about it.
      await this.#end(true).catch((lost: unknown) => noteLoss(error, lost));
      throw error;
    } finally {
      entered.delete(this);
    }
    await this.#end(true);
    return result;
  }

  /**
   * Releases the lock at the end of an `await using` block; does nothing if it is not held.
   *
   * @throws {@link LockLost}: the lock was lost within the block. If the block has thrown, the language throws a
   * `SuppressedError`, whose `suppressed` is what the block has thrown; {@link Lock.using} throws that itself.
   * @throws {@link LockClosed}: its client was closed within the block.
   *
   * @example
   * ```ts
   * await using held = await redlock.lock("foo").acquire();
   * ```
   */
  async [asyncDispose](): Promise<void> {
    await this.#end(true);
  }

  /** What a logger writes. @internal */
  toJSON(): object {
    const { name, held, remaining } = this;
    return { name, held, remaining };
  }

  /** @internal */
  [inspect](): unknown {
    return Object.assign(new (class Lock {})(), this.toJSON());
  }

  /** Starts an acquire, and waits for its result. */
  #begin(timeout: number | null | undefined, signal: AbortSignal | undefined): ReturnType<typeof outcome> {
    this.#provider?.refuseOwn();
    if (this.#controller !== undefined) this.#tell();
    // Listeners of a loss have run by now. From here on no other code runs until the signal has its listener.
    signal?.throwIfAborted();
    const id = unwrap(this.#start(timeout));
    // An aborted signal stays with the hold that was lost. Any other belongs to the next hold.
    if (this.#controller?.signal.aborted) this.#controller = undefined;
    return outcome(id, signal);
  }

  /** Starts an acquire, which makes the native object. */
  #start(timeout: number | null | undefined): Started {
    const { number } = this.#template;
    const started = acquire(queue(), this.#numbered(), number, this.#name, this.#released, timeout);
    if (typeof started === "number") this.#exists = true;
    return started;
  }

  /** Returns the number of the native object, and makes the object if there is none. */
  #object(): number {
    const number = this.#numbered();
    if (!this.#exists) {
      makeLock(queue(), number, this.#template.number, this.#name, this.#released);
      this.#exists = true;
    }
    return number;
  }

  #numbered(): number {
    if (this.#number === 0) {
      lastNumber += 1;
      this.#number = lastNumber;
      collected.register(this, lastNumber);
    }
    return this.#number;
  }

  /** Releases the lock, and has the next call make the native object, in case that this has dropped it. */
  async #end(atExit: boolean): Promise<void> {
    this.#part();
    const id = unwrap(release(queue(), this.#object(), atExit, this.#watched));
    this.#exists = this.#watched;
    this.#released = true;
    unwrap(await outcome(id));
  }

  /** Detaches the signal of the present hold from this object: later losses belong to the next one. */
  #part(): void {
    if (this.#controller === undefined) return;
    // Without a hold, the signal is that of the next one already.
    if (this.#tell() !== "not_held") this.#controller = undefined;
  }

  /** Aborts the signal if the lock was lost. Returns why it is not held, if it is not. */
  #tell(): ErrorCode | undefined {
    const failure = check(queue(), this.#object());
    if (failure?.code === "lost") this.#controller?.abort(errorOf(failure));
    return failure?.code;
  }

  #watch(): void {
    if (this.#watched) return;
    this.#watched = true;
    const lock = new WeakRef(this);
    onLoss(watch(queue(), this.#object()), () => {
      const watched = lock.deref();
      if (watched !== undefined) watched.#tell();
    });
  }
}
