/// <reference lib="esnext.disposable" preserve="true" />
import type { Holder } from "#native";
import { outcome, queue, watch } from "./calls.js";
import { errorOf, LockInvalidArgument, LockLost, LockTimeout, unwrap } from "./errors.js";
import { checked, expect, type Kinds, MILLISECONDS, MILLISECONDS_OR_NULL, SIGNAL } from "./validate.js";

/** How one acquire waits. */
export interface AcquireOptions {
  /** How long to wait, in milliseconds: 0 is one try, `null` waits for ever. Default: the lock's own timeout. */
  readonly timeout?: number | null | undefined;
  /** Ends the wait when it is aborted. It has no say once the lock is acquired. */
  readonly signal?: AbortSignal | undefined;
}

/** How one try can be broken off. */
export interface TryOptions {
  /** Ends the try when it is aborted. */
  readonly signal?: AbortSignal | undefined;
}

const ACQUIRE: Kinds = { timeout: MILLISECONDS_OR_NULL, signal: SIGNAL };
const TRY: Kinds = { signal: SIGNAL };

/** Node 20 has it, but not from its first release on. */
const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");
const inspect = Symbol.for("nodejs.util.inspect.custom");

/** Keeps a lock for as long as someone has its signal: collected, it would be released. */
const holders = new WeakMap<AbortSignal, Lock>();

/**
 * A lock by name, made by {@link Redlock.lock}. One object is one holder: acquiring it while it is held is
 * `already_held`, and two objects of one name exclude each other, in one process too. It can be acquired again after it
 * was released or lost.
 *
 * Keep the object for as long as the lock is to be held: collected as garbage while held, it is released. A held lock
 * does not keep the process alive; it is released when the process ends by itself or by `process.exit`, as far as the
 * servers answer within 500 ms.
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
  readonly #holder: Holder;
  #controller: AbortController | undefined;
  #watched = false;

  private constructor(holder: Holder) {
    this.#holder = holder;
  }

  /** @internal */
  static of(holder: Holder): Lock {
    return new Lock(holder);
  }

  /** The name; of a name given as bytes, those that are no UTF-8 are replaced. */
  get name(): string {
    return this.#holder.name();
  }

  /**
   * The fencing token: larger than every fence of this name before it. Send it along with every access to the protected
   * resource, which must remember the largest and refuse smaller ones. A safe integer. Of a lock that was lost, the
   * fence of that hold.
   *
   * @throws {@link LockNotHeld} before an acquire and after a release.
   * @throws {@link LockInvalidArgument}: the protocol `"setnx"` has none.
   */
  get fence(): number {
    return unwrap(this.#holder.fence());
  }

  /** Whether the lock is held at this moment: the end of its validity is compared with the clock at the call. */
  get held(): boolean {
    return this.#holder.held();
  }

  /** How long the lock can still be relied on without another renewal, in milliseconds; 0 when it is not held. */
  get remaining(): number {
    return this.#holder.remaining();
  }

  /**
   * Aborted with the {@link LockLost} when the lock is lost, from a local timer and without waiting for any server; late
   * only by what keeps the event loop. A release does not abort it.
   *
   * It belongs to the present hold, or where there is none to the next one: every acquisition has a signal of its own.
   * Asked for after the loss, and before a release or another acquire, it is aborted already, with the same error.
   * Whoever has the signal keeps the lock object alive.
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
   * @returns the lock, for `await using held = await lock.acquire()`.
   * @throws {@link LockTimeout}: others held it until the timeout was over.
   * @throws {@link LockUnavailable}: no quorum of nodes could be asked or would answer, until the timeout, or for 10 s
   * where none is set.
   * @throws {@link LockForbidden}: nodes that refuse the credentials or rights rule out a quorum.
   * @throws {@link LockAlreadyHeld}: this object holds the lock, or is acquiring it.
   * @throws {@link LockInvalidArgument}: a wrong option, too many addresses of one server, or a closed client.
   * @throws the signal's reason, when `signal` is aborted: before anything is sent if it is so already, else at once,
   * and then the attempt leaves no key behind. An abort after the lock was acquired does nothing.
   *
   * @example
   * ```ts
   * await lock.acquire({ timeout: 2_000, signal: AbortSignal.any([request.signal, shutdown]) });
   * ```
   */
  async acquire(options?: AcquireOptions): Promise<this> {
    const { timeout, signal } = checked(options, ACQUIRE) ?? {};
    if (this.#controller !== undefined) this.#tell();
    // After whoever listens to a loss: from here on nobody else runs until the signal is listened to.
    signal?.throwIfAborted();
    const id = unwrap(queue().acquire(this.#holder, timeout));
    // The signal of a hold that was lost stays with that one; any other is for the one to come.
    if (this.#controller?.signal.aborted) this.#controller = undefined;
    unwrap(await outcome(id, signal));
    return this;
  }

  /**
   * Tries once, whatever timeout the lock has.
   *
   * Takes at most the client's `connectTimeout` and twice the `nodeTimeout`.
   *
   * @returns whether the lock was acquired; `false` if others hold it, or were taking it at the same time.
   * @throws as {@link Lock.acquire}, {@link LockTimeout} excepted.
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
  async tryAcquire(options?: TryOptions): Promise<boolean> {
    const { signal } = checked(options, TRY) ?? {};
    try {
      await this.acquire({ timeout: 0, signal });
      return true;
    } catch (error) {
      if (error instanceof LockTimeout) return false;
      throw error;
    }
  }

  /**
   * Extends the lock now. Seldom needed: with `autoRenew`, which is the default, the background does it.
   *
   * @param ttl - the lease from now on, in milliseconds, 100 to 86 400 000; it becomes the ttl of later renewals too.
   * Default: the ttl in force.
   * @throws {@link LockLost}: the lock was lost, or is lost with this.
   * @throws {@link LockUnavailable}: no quorum of nodes answered; the lock stays valid until its time is over.
   * @throws {@link LockNotHeld}: there is nothing to extend.
   * @throws {@link LockInvalidArgument}: a wrong ttl, or the protocol `"setnx"`, which cannot extend.
   */
  async extend(ttl?: number): Promise<void> {
    if (ttl !== undefined) expect("ttl", ttl, MILLISECONDS);
    const id = unwrap(queue().extend(this.#holder, ttl));
    unwrap(await outcome(id));
  }

  /**
   * Releases the lock. From the call on it is not held, whatever comes of the release; what is left to do, the
   * background does. Releasing again does nothing.
   *
   * @throws {@link LockLost}: the lock had been lost before, so that someone else may have held it meanwhile.
   * @throws {@link LockUnavailable}: no quorum of nodes confirmed it within `nodeTimeout`, or within 250 ms if
   *   that is longer, and the client's `connectTimeout` where connections have to be made; the background goes on.
   * @throws {@link LockNotHeld}: this object never acquired it.
   */
  async release(): Promise<void> {
    this.#part();
    const id = unwrap(queue().release(this.#holder));
    unwrap(await outcome(id));
  }

  /**
   * Fails when the lock is not held at this moment. Sends nothing: the end of the validity is compared with the clock.
   *
   * @throws {@link LockLost} with its reason.
   * @throws {@link LockNotHeld} before an acquire and after a release.
   */
  check(): void {
    const failure = this.#holder.check();
    if (failure !== null) throw errorOf(failure);
  }

  /**
   * Acquires the lock, runs `body`, and releases the lock when the body's promise is settled.
   *
   * The body is not stopped when the lock is lost: pass its signal on to what it awaits, or call {@link Lock.check}
   * before each step.
   *
   * @param body - is given the lock's {@link Lock.signal} and the lock.
   * @param options - how to wait for the lock; they have no say once the body runs.
   * @returns what the body returned.
   * @throws what the body threw, if it did, in preference to all below.
   * @throws {@link LockLost}: the lock was lost while the body ran.
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
  async using<T>(body: (signal: AbortSignal, lock: this) => T | PromiseLike<T>, options?: AcquireOptions): Promise<T> {
    if (typeof body !== "function") {
      throw new LockInvalidArgument("using(body, options) takes the function first; a ttl is an option of the lock");
    }
    await this.acquire(options);
    let result: T;
    try {
      result = await body(this.signal, this);
    } catch (error) {
      // The body's own error says more; that the lock is lost may even be what it is about.
      await this.#leave().catch(() => undefined);
      throw error;
    }
    await this.#leave();
    return result;
  }

  /**
   * Releases the lock at the end of an `await using` block; does nothing where it is not held.
   *
   * @throws {@link LockLost}: the lock was lost within the block.
   *
   * @example
   * ```ts
   * await using held = await redlock.lock("foo").acquire();
   * ```
   */
  async [asyncDispose](): Promise<void> {
    await this.#leave();
  }

  /** @internal */
  [inspect](): unknown {
    const { name, held, remaining } = this;
    return new (class Lock {
      readonly name = name;
      readonly held = held;
      readonly remaining = remaining;
    })();
  }

  async #leave(): Promise<void> {
    this.#part();
    const id = unwrap(queue().leave(this.#holder));
    unwrap(await outcome(id));
  }

  /** Ends what the signal is about: what comes after belongs to the next hold. */
  #part(): void {
    if (this.#controller === undefined) return;
    this.#tell();
    this.#controller = undefined;
  }

  /** Tells the signal of a loss, if there was one. */
  #tell(): void {
    const failure = this.#holder.check();
    if (failure?.code === "lost") this.#controller?.abort(errorOf(failure));
  }

  #watch(): void {
    if (this.#watched) return;
    this.#watched = true;
    const lock = new WeakRef(this);
    watch(this.#holder, () => {
      const watched = lock.deref();
      if (watched !== undefined) watched.#tell();
    });
  }
}
