/** Elections: of many candidates, at most one leads. */

import { LockClosed, LockInvalidArgument, LockLost, LockUnavailable } from "./errors.js";
import { inspect, type Lock } from "./lock.js";
import type { LockOptions } from "./options.js";
import { checkedOptions, LOCK_OPTIONS, refuseGenerator } from "./validate.js";

/**
 * The options of an election, in milliseconds. With `ttl`, another one leads at most this long after a leader has
 * crashed. With `margin`, a leader that cannot renew its term has this long to stop before another one can lead. A
 * candidate waits forever, so there is no `timeout`.
 */
export type ElectionOptions = Pick<LockOptions, (typeof OPTIONS)[number]>;

const OPTIONS = ["ttl", "margin", "nodeTimeout", "restartDelay", "fenceTtl", "label"] as const;

/** As that of a lock. */
const UNCLONEABLE = Symbol("an election cannot be copied; make another with its name where it is needed");

/** A leader, as the nodes show it. */
export interface Leader {
  /** The label of the leader, by default `host:pid`; null if it has none. */
  readonly label: string | null;
  /** The term. With several nodes it is null, because each node shows only the fence that it granted. */
  readonly term: number | null;
}

/**
 * An election among all candidates that use its name, made by {@link Redlock.election}: at most one of them leads at
 * any moment.
 *
 * It is a lock of this name that a candidate waits for without a timeout. A term is the time of one leader, and its
 * number is the {@link Lock.fence}: terms rise, and a resource that refuses smaller numbers is safe from a former
 * leader that does not know yet that it was replaced.
 *
 * @example
 * ```ts
 * const election = redlock.election("scheduler", { margin: 2_000 });
 * process.once("SIGTERM", () => election.stop());
 * await election.run(async (signal, { fence }) => {
 *   while (!signal.aborted) await schedule(signal, fence);
 * });
 * ```
 */
export class Election {
  /** @internal */
  readonly uncloneable = UNCLONEABLE;
  readonly #term: () => Lock;
  readonly #name: string;
  readonly #stopping = new AbortController();

  private constructor(term: () => Lock, name: string) {
    if (typeof term !== "function") {
      throw new LockInvalidArgument(
        'a client makes elections: redlock.election("name"), or election("name") with the default client',
      );
    }
    this.#term = term;
    this.#name = name;
  }

  /** @internal */
  static of(
    name: string | Uint8Array,
    options: ElectionOptions | undefined,
    term: (name: string | Uint8Array, options: LockOptions) => Lock,
  ): Election {
    const given = checkedOptions<LockOptions>(options, LOCK_OPTIONS) ?? {};
    for (const option of Object.keys(given)) {
      if (OPTIONS.some((known) => known === option)) continue;
      throw new LockInvalidArgument(`${option} is not an option of an election`, { option });
    }
    // Bytes may change later.
    const kept = typeof name === "string" ? name : new Uint8Array(name);
    const make = () => term(kept, given);
    // A wrong name is refused now, and not by the first campaign.
    return new Election(make, make().name);
  }

  /**
   * Campaigns until it leads, and then runs `body` for one term. Resolves to what `body` returned, or to `undefined` if
   * the election was stopped before.
   *
   * The term ends when the promise of `body` is settled, so a leader resigns by returning. If the term is lost before
   * that, the signal is aborted with the {@link LockLost}. The candidate then waits until `body` has settled, ignores
   * what it returned, and campaigns again. A campaign does not end while no quorum of nodes answers.
   *
   * A campaign keeps the process alive. A term does not, so `body` must await something that does. A process that ends
   * by itself or by `process.exit` resigns. Each call of `run` is a candidate of its own.
   *
   * @param body - gets a signal and the lock that the term holds. The signal is aborted when the term is lost or the
   * election is stopped; pass it on to what `body` awaits. It is not an error if `body` then rejects with the signal's
   * reason, with the loss of this lock, or with an `AbortError`.
   * @throws what `body` threw. The candidate has resigned then.
   * @throws {@link LockForbidden}: nodes that refuse the credentials or rights rule out a quorum.
   * @throws {@link LockInvalidArgument}: not a function, a generator, or too many addresses of one server.
   * @throws {@link LockClosed}: the client is closed.
   *
   * @example
   * ```ts
   * await election.run(async (signal, lock) => {
   *   for await (const job of jobs({ signal })) await run(job, lock.fence); // the resource refuses smaller fences
   * });
   * ```
   */
  async run<T>(body: (signal: AbortSignal, lock: Lock) => T | PromiseLike<T>): Promise<T | undefined> {
    if (typeof body !== "function") {
      throw new LockInvalidArgument("run(body) takes a function; a ttl is an option of the election");
    }
    refuseGenerator("body", body);
    const lock = this.#term();
    while (await this.#campaign(lock)) {
      const led = await this.#lead(lock, body);
      if (led.isOver) return led.result;
    }
    return undefined;
  }

  /**
   * Stops the election for this candidate: each {@link Election.run} resolves to `undefined`, also one that begins
   * later. A campaign ends at once. In a term, the signal is aborted now, and the term ends when the body has settled.
   */
  stop(): void {
    this.#stopping.abort();
  }

  /** Whether the election was stopped for this candidate. */
  get stopped(): boolean {
    return this.#stopping.signal.aborted;
  }

  /**
   * Asks the nodes who leads; null if no quorum of them shows a leader. The answer may be out of date when it arrives.
   *
   * Takes as long as {@link Redlock.inspect}.
   *
   * @throws {@link LockUnavailable} or {@link LockForbidden}: too few nodes answer to know.
   * @throws {@link LockClosed}: the client is closed.
   *
   * @example
   * ```ts
   * const leader = await election.leader();
   * console.log(leader === null ? "nobody leads" : `${leader.label} leads`);
   * ```
   */
  async leader(): Promise<Leader | null> {
    const { state, label, fence, nodes } = await this.#term().view();
    return state === "held" ? { label, term: nodes.length === 1 ? fence : null } : null;
  }

  /** What a logger writes. @internal */
  toJSON(): object {
    return { name: this.#name, stopped: this.stopped };
  }

  /** @internal */
  [inspect](): unknown {
    return Object.assign(new (class Election {})(), this.toJSON());
  }

  /** Acquires the lock, however long no quorum answers. Returns false once the election is stopped. */
  async #campaign(lock: Lock): Promise<boolean> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      try {
        await lock.acquire(signal);
        return true;
      } catch (error) {
        if (signal.aborted && error === signal.reason) return false;
        // Without answers of nodes, the cause is in this process, and would not go away.
        if (!(error instanceof LockUnavailable && error.nodes.length > 0)) throw error;
      }
    }
    return false;
  }

  /** Runs the body for one term, and releases the lock. It is over unless the term was cut short. */
  async #lead<T>(
    lock: Lock,
    body: (signal: AbortSignal, lock: Lock) => T | PromiseLike<T>,
  ): Promise<{ isOver: boolean; result?: T }> {
    const term = new Term(lock.signal, this.#stopping.signal);
    const led: { isOver: boolean; result?: T } = { isOver: false };
    try {
      await lock.hold(async () => {
        try {
          term.signal.throwIfAborted();
          led.result = await body(term.signal, lock);
          led.isOver = true;
        } finally {
          // A stop that comes during the release is too late.
          term.close();
        }
      });
    } catch (error) {
      // Once the body has returned, this is about the release. The candidate has resigned whatever it says, but if its
      // client was closed, others could lead meanwhile.
      if (error instanceof LockClosed || !(led.isOver || term.isEnd(error))) throw error;
    }
    return term.isCut ? { isOver: false } : led;
  }
}

/** The signal of one term: aborted when the lock is lost or the election is stopped, with the reason of the first. */
class Term {
  readonly #controller = new AbortController();
  readonly #loss: AbortSignal;
  readonly #stop: AbortSignal;
  readonly #abort = (): void => {
    const { reason } = this.#loss.aborted ? this.#loss : this.#stop;
    this.#controller.abort(reason);
  };

  constructor(loss: AbortSignal, stop: AbortSignal) {
    this.#loss = loss;
    this.#stop = stop;
    for (const source of [loss, stop]) {
      if (source.aborted) this.#abort();
      else source.addEventListener("abort", this.#abort);
    }
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Ends the subscriptions, because the body has settled. */
  close(): void {
    for (const source of [this.#loss, this.#stop]) source.removeEventListener("abort", this.#abort);
  }

  /** Whether the term was cut short, also if a busy event loop has not reported the loss yet. */
  get isCut(): boolean {
    return this.signal.aborted || this.#loss.aborted;
  }

  /** Whether what a body threw says only that the term was cut short: the reason, or an error made from it. */
  isEnd(error: unknown): boolean {
    if (!this.isCut) return false;
    const { reason } = this.signal.aborted ? this.signal : this.#loss;
    if (error === reason || (error instanceof LockLost && this.#isLoss(error))) return true;
    if (typeof error !== "object" || error === null) return false;
    return ("name" in error && error.name === "AbortError") || ("cause" in error && error.cause === reason);
  }

  /** Whether it is the loss of this term's lock, as from {@link Lock.check}, which makes another error. */
  #isLoss({ lockName }: LockLost): boolean {
    return this.#loss.aborted && (this.#loss.reason as LockLost).lockName === lockName;
  }
}
