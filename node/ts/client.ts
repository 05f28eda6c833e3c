/// <reference lib="esnext.disposable" preserve="true" />
import {
  breakLock,
  Client,
  close,
  diagnose,
  inspect,
  inspectSemaphore,
  type Listing,
  listPage,
  type LockView as NativeView,
  type Started,
  waitFree,
} from "#native";
import { outcome, queue } from "./calls.js";
import { type Nodes, read } from "./clients.js";
import { Provider } from "./credentials.js";
import { Election, type ElectionOptions } from "./election.js";
import { LockInvalidArgument, unwrap } from "./errors.js";
import { ACQUIRE, type AcquireOptions, asyncDispose, given, HOW, Lock, inspect as shown } from "./lock.js";
import { type Locked, wrap } from "./locked.js";
import type { ClientOptions, LockOptions, NameOptions } from "./options.js";
import { type Kind, Templates } from "./template.js";
import {
  ATTACH_OPTIONS,
  CLIENT_OPTIONS,
  COUNT,
  checked,
  checkedName,
  checkedNames,
  checkedNodes,
  checkedOptions,
  checkedPattern,
  clientValues,
  expect,
  LOCK_OPTIONS,
  MILLISECONDS,
  NAME_OPTIONS,
  type Name,
  TEXT,
  values,
} from "./validate.js";

/** How a detached lock is attached. */
export interface AttachOptions {
  /** The ttl of renewals from now on, in milliseconds: 100 to 86 400 000. Default: as before. */
  readonly ttl?: number | null | undefined;
  /**
   * How long to try while no quorum of nodes answers, in milliseconds: 0 is one try. Default: the client's timeout, and
   * 10 000 without one.
   */
  readonly timeout?: number | null | undefined;
  /** Aborting it cancels the call. It has no effect once the lock is attached. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * How serious a finding is. `ok`: as it should be. `warning`: locks work, and something is lost. `unusable`: the node
 * cannot vote, or its vote does not count.
 */
export type Level = "ok" | "warning" | "unusable";

/** One finding about a node. */
export interface Finding {
  /**
   * What was looked at: `connection`, `tls`, `role`, `version`, `resp3`, `info`, `tracking`, `evalsha`, `rights`,
   * `eviction`, `persistence`, `replicas`, `clients`, `clock`, `cluster`, `slots`, `coverage`, `map`, `sentinel`,
   * `primary`, `failover`, `alias` or `vote`.
   */
  readonly check: string;
  /** How serious it is. */
  readonly level: Level;
  /** What was found, and what to do, in one sentence. */
  readonly message: string;
}

/** A node and what was found about it. */
export interface Diagnosis {
  /** The node's address without user name or password. */
  readonly node: string;
  /** The level of the most serious finding. */
  readonly level: Level;
  /** The findings, one or more for each check. A node that cannot be asked has one, and those about its sentinels. */
  readonly findings: readonly Finding[];
}

/** What one node has under a lock's name. */
export type NodeView = {
  /** The node's address without user name or password. */
  readonly node: string;
  /**
   * The key on the node: the client's `keyPrefix` and the name, or the key of a semaphore's slot, with invalid UTF-8
   * replaced.
   */
  readonly key: string;
} & (
  | { /** Nothing: on this node the lock is free. */ readonly state: "free" }
  | {
      /** A lock of this library. */
      readonly state: "held";
      /** The label of the lock; left out if it has none. */
      readonly label?: string;
      /** The fence on this node. */
      readonly fence: number;
      /** How long the node keeps the key unless it is extended, in milliseconds; null if it does not expire. */
      readonly ttlLeft: number | null;
    }
  | {
      /** A lock of this library that readers share. */
      readonly state: "shared";
      /** How many share it. */
      readonly readers: number;
      /** The labels of readers that have one, at most 16. */
      readonly labels: readonly string[];
      /** The fence with which the sharing began on this node. No reader's is smaller. */
      readonly fence: number;
      /** How long the node keeps the key unless it is extended, in milliseconds; null if it does not expire. */
      readonly ttlLeft: number | null;
    }
  | {
      /** Something else: a lock of another library, or a key that is not a lock. */
      readonly state: "foreign";
      /** How long the node keeps the key, in milliseconds; null if it does not expire. */
      readonly ttlLeft: number | null;
    }
  | {
      /** The node could not be asked. */
      readonly state: "unavailable";
      /** The node's answer, or why the connection failed. */
      readonly error: string;
    }
);

/**
 * A lock and what its nodes show of it together.
 *
 * Each node answers for itself, so a lock that changes hands meanwhile may show a state that it never had. A view is
 * for people and their dashboards: only an acquire says whether work may begin.
 */
export interface LockView {
  /** The name, with invalid UTF-8 replaced. */
  readonly name: string;
  /**
   * The key on the nodes: the client's `keyPrefix` and the name, or the key of a semaphore's slot, with invalid UTF-8
   * replaced.
   */
  readonly key: string;
  /** The slot of a semaphore that this is about; null for other locks. */
  readonly slot: number | null;
  /**
   * Whose it is, as far as a quorum of nodes shows it. `free`: they would grant it. `held`: one owner has it on them.
   * `shared`: readers share it. `foreign`: they have a lock of another library, or a key that is not a lock. `unknown`: no quorum shows the same,
   * because too few nodes could be asked, nodes that restarted are in quarantine, votes are split, or the lock is being
   * acquired or released.
   */
  readonly state: "free" | "held" | "shared" | "foreign" | "unknown";
  /** The label of the holder, by default `host:pid`; null if it has none, or the lock is not held. */
  readonly label: string | null;
  /**
   * A lower bound of the holder's fence; null if the lock is neither held nor shared. Usually it is the fence itself, and
   * on one node always. On several nodes, each shows only the fence that it granted. Of a shared lock, a lower bound of
   * every reader's fence.
   */
  readonly fence: number | null;
  /**
   * About when the lock was acquired, or its sharing began, by the clocks of nodes and clients; null if it is neither held
   * nor shared. It is read from the fence, so it is later than that where an earlier fence was ahead of the clocks.
   */
  readonly since: Date | null;
  /**
   * How long at least a quorum of nodes keeps a held, shared or foreign key unless it is extended, in milliseconds; null for a
   * key that does not expire.
   */
  readonly ttlLeft: number | null;
  /** The number of nodes that have the lock of the holder. If there is none, of the owner that is on the most nodes. */
  readonly holders: number;
  /** The number of nodes that is a quorum. */
  readonly quorum: number;
  /**
   * About how many processes wait for the lock; null if no node shows it, as without a right to the waiters key. The
   * number is a hint: it is the largest of any node, and waiters that gave up are counted until the lock changes hands.
   */
  readonly waiting: number | null;
  /** The number of readers of a shared lock, on the node with the most; null if it is not shared. */
  readonly readers: number | null;
  /** The labels of readers on that node, at most 16; empty if it is not shared. */
  readonly labels: readonly string[];
  /** What each node shows, in the order of the addresses. */
  readonly nodes: readonly NodeView[];
}

function viewOf({ since, nodes, ...view }: NativeView): LockView {
  return { ...view, since: since === null ? null : new Date(since), nodes: nodes as NodeView[] };
}

export const dispose: typeof Symbol.dispose = Symbol.dispose ?? Symbol.for("Symbol.dispose");

/** Returns `REDLOCK_URLS` as a worker thread or a test in Jest has set it: in a copy that native code does not see. */
function environment(): string | undefined {
  try {
    const { REDLOCK_URLS } = process.env;
    return REDLOCK_URLS;
  } catch {
    // Deno wants a permission for that. Native code needs none.
    return undefined;
  }
}

/** As that of a lock. */
const UNCLONEABLE = Symbol("a client cannot be copied; make another with its addresses where it is needed");

/**
 * A client for one set of nodes: one server, or several independent ones of which a quorum must agree.
 *
 * Makes no connection before the first call on a lock, and never keeps the process alive. All clients of a process
 * share its knowledge of a node, also clients that are made later or list other nodes beside it.
 *
 * @example
 * ```ts
 * const redlock = new Redlock(["redis://a", "redis://b", "redis://c"], { ttl: 30_000 });
 * await redlock.lock("report").using(async (signal) => { ... });
 * ```
 */
export class Redlock {
  /** @internal */
  readonly uncloneable = UNCLONEABLE;
  readonly #client: Client;
  readonly #templates: Templates;
  #provider: Provider | undefined;
  #closing: ReturnType<typeof outcome> | undefined;

  /**
   * @param nodes - 1 to 15 addresses: `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS,
   * `unix:///path?db=0&user=u&pass=p`, `redis+sentinel://[user:password@]host1,host2/mymaster[/db]` for the primary that
   * sentinels name, `redis+cluster://[user:password@]host1,host2` for a Redis Cluster, the same with `valkey`, or
   * `memory://name` for a store inside this process that excludes nobody outside it. Default: the environment variable
   * `REDLOCK_URLS` (separated by commas), or if that is not set `redis://127.0.0.1:6379`. A client of ioredis or
   * node-redis, or its options, can stand for an address: the server, the login, the options of TLS and `keyPrefix` are
   * read from it, also those of clusters and sentinels. Redlock opens its own connections.
   * @param options - defaults for the locks of this client, and its own options.
   * @throws {@link LockInvalidArgument}: a wrong or unknown part of an address, a duplicate, a wrong option, or
   * an option of another client that would change the connections and cannot be carried over.
   */
  constructor(nodes?: Nodes, options?: ClientOptions) {
    const checked = checkedNodes(nodes);
    const own = checkedOptions(options, CLIENT_OPTIONS);
    const { urls, defaults } = checked?.some((node) => typeof node !== "string")
      ? read(checked, { ...own })
      : { urls: checked as string[] | undefined, defaults: undefined };
    const given = defaults === undefined ? own : { ...defaults, ...own };
    this.#provider = given?.credentials ? Provider.of(given.credentials) : undefined;
    this.#client = unwrap(Client.open(urls ?? environment(), clientValues(given), this.#provider?.native));
    this.#templates = new Templates(this.#client, given?.keyPrefix ?? "");
  }

  /**
   * Makes a lock with this name. Sends nothing.
   *
   * @param name - 1 to 512 bytes, of UTF-8 if given as a string; the key on the servers is the name, unchanged, after
   * the client's `keyPrefix`. Names that begin with `redlock:fence:`, `redlock:waiters:`, `redlock:slot:` or
   * `redlock:shared:` are reserved.
   * @param options - options that replace those of the client.
   * @throws {@link LockInvalidArgument}: a wrong name or option.
   * @throws {@link LockClosed}: the client is closed.
   */
  lock(name: string | Uint8Array, options?: NameOptions): Lock {
    const right = checkedName(name);
    const given = checkedOptions(options, NAME_OPTIONS);
    return this.#make(given?.shared ? "shared" : "lock", right, given);
  }

  /**
   * Makes a lock of several names: an acquire gets all of them, or none. Sends nothing.
   *
   * It excludes every other lock of each name, and asks each node once, however many names there are. It holds nothing
   * while it waits, so it cannot be part of a deadlock. It may wait for long if others often hold one of its names. It
   * is released and lost as a whole, and one {@link Lock.fence} is for all names.
   *
   * @param names - 1 to 16 names as for {@link Redlock.lock}, in any order. Repeated names count once, and one name is
   * the ordinary lock. On a Redis Cluster, all must be in one slot: give them the same hash tag, as in `{17}:from`.
   * @param options - options that replace those of the client. `atLeast` and the protocol `"setnx"` need one name.
   * @throws {@link LockInvalidArgument}: wrong names (its `option` is `names`), or a wrong option.
   * @throws {@link LockClosed}: the client is closed.
   *
   * @example
   * ```ts
   * await redlock.lockAll(["account:ada", "account:bob"]).using(async (signal, { fence }) => {
   *   await transfer("ada", "bob", 17, fence);
   * });
   * ```
   */
  lockAll(names: readonly (string | Uint8Array)[], options?: LockOptions): Lock {
    return this.#make("several", checkedNames(names), checkedOptions(options, LOCK_OPTIONS));
  }

  /**
   * Makes a lock for one of the permits of a semaphore, which that many can hold at once. Sends nothing.
   *
   * An acquire gets a {@link Lock.slot} of its own, a number below `permits`. The nodes do not record the number of
   * permits, so it can change during a deployment: as long as programs differ, the largest number applies. Waiters are
   * not served in order, and a semaphore does not limit a rate. It does not exclude {@link Redlock.lock} of this name.
   *
   * @param name - as for {@link Redlock.lock}.
   * @param permits - how many can hold it: 1 to 1000.
   * @param options - options that replace those of the client. The protocol `"setnx"` has no semaphores.
   * @throws {@link LockInvalidArgument}: a wrong name, permits (its `option` is `permits`) or option.
   * @throws {@link LockClosed}: the client is closed.
   *
   * @example
   * ```ts
   * await redlock.semaphore("reports", 5, { timeout: 60_000 }).using(async (signal) => {
   *   await report(signal); // at most five at a time, on all servers together
   * });
   * ```
   */
  semaphore(name: string | Uint8Array, permits: number, options?: LockOptions): Lock {
    const right = checkedName(name);
    expect("permits", permits, COUNT);
    return this.#make(permits, right, checkedOptions(options, LOCK_OPTIONS));
  }

  #make(kind: Kind, name: Name | Name[], options: object | undefined): Lock {
    return Lock.of(this.#templates.of(kind, name, options), name, this.#provider);
  }

  /**
   * Goes on with the hold that {@link Lock.detach} has ended with this text, and resolves to the lock, which is held.
   *
   * It has the same names, fence and slot, and is renewed again. Of several calls with one text, one gets the lock at
   * most, and a former holder that still runs finds that the lock is not its own any more. `maxHold`, `atLeast`, `margin`
   * and `label` are in the text. The times since the acquire are compared by the clocks of both machines.
   *
   * This client has the same nodes as the one that acquired the lock, and the same `keyPrefix`.
   *
   * @param text - what {@link Lock.detach} has resolved to, in this program or in another.
   * @throws {@link LockLost}: a quorum of nodes shows that the lock is over, or is somebody else's: it has expired, was
   * attached before, or was deleted.
   * @throws {@link LockUnavailable}: no quorum of nodes answered in time. The text can be attached again.
   * @throws {@link LockForbidden}: nodes that refuse the credentials or rights rule out a quorum.
   * @throws {@link LockInvalidArgument}: the text was changed or is something else (its `option` is `text`), or a wrong
   * option.
   * @throws the signal's reason, at once when `signal` is aborted. The text can be attached again then.
   *
   * @example
   * ```ts
   * await using lock = await redlock.attach(job.data.lock);
   * await report(job.data.id, lock.fence);
   * ```
   */
  async attach(text: string, options?: AttachOptions): Promise<Lock> {
    expect("text", text, TEXT);
    const { signal, ...given } = checked(options, ATTACH_OPTIONS, "{ timeout: 500 }") ?? {};
    const native = unwrap(this.#client.templateOfDetached(text, values(given)));
    const [name, ...others] = native.names() as [Name, ...Name[]];
    const template = { number: native.number(), native, values: undefined };
    const lock = Lock.of(template, others.length > 0 ? [name, ...others] : name, this.#provider);
    return await lock.acquire({ signal });
  }

  /**
   * Makes an election among all candidates that use this name: at most one of them leads at any moment. Sends nothing.
   *
   * @param name - as for {@link Redlock.lock}. It is the name of a lock, which the leader holds.
   * @param options - options that replace those of the client.
   * @throws {@link LockInvalidArgument}: a wrong name or option.
   * @throws {@link LockClosed}: the client is closed.
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
  election(name: string | Uint8Array, options?: ElectionOptions): Election {
    const term = (name: string | Uint8Array, own: LockOptions): Lock => this.#make("term", name, own);
    return Election.of(checkedName(name), options, term);
  }

  /**
   * Wraps a function, so that each call runs under a fresh lock; see {@link locked}.
   *
   * @throws {@link LockInvalidArgument}: a wrong name or option.
   * @throws {@link LockClosed}: the client is closed.
   */
  get locked(): Locked {
    return (name: unknown, ...rest: unknown[]) => wrap(() => this, name, ...rest);
  }

  /**
   * Shows whose lock this name is, since when and for how long, on how many nodes, how many wait, and what every node
   * has under it. Changes nothing.
   *
   * Takes at most the client's `nodeTimeout`, and its `connectTimeout` if connections have to be made. A node that
   * cannot be asked is part of the answer.
   *
   * @throws {@link LockInvalidArgument}: a wrong name.
   * @throws {@link LockClosed}: the client is closed.
   *
   * @example
   * ```ts
   * const { state, label, since, waiting } = await redlock.inspect("report");
   * if (state === "held") console.log(`${label} has it since ${since}, and ${waiting} wait`);
   * ```
   */
  async inspect(name: string | Uint8Array): Promise<LockView> {
    const bytes = checkedName(name);
    const [view] = (await this.#ask(() => inspect(queue(), this.#client, bytes))) as [NativeView];
    return viewOf(view);
  }

  /**
   * Shows whose the slots of a semaphore are: a view for each slot from 0 to `permits` less one, as
   * {@link Redlock.inspect} shows it. Changes nothing.
   *
   * Takes as long as {@link Redlock.inspect} for each 64 permits.
   *
   * @throws {@link LockInvalidArgument}: a wrong name or number of permits.
   * @throws {@link LockClosed}: the client is closed.
   *
   * @example
   * ```ts
   * for (const { slot, state, label } of await redlock.inspectSemaphore("reports", 5)) {
   *   console.log(slot, state, label);
   * }
   * ```
   */
  async inspectSemaphore(name: string | Uint8Array, permits: number): Promise<LockView[]> {
    const bytes = checkedName(name);
    expect("permits", permits, COUNT);
    const views = await this.#ask(() => inspectSemaphore(queue(), this.#client, bytes, permits));
    return (views as NativeView[]).map(viewOf);
  }

  /**
   * Lists the locks that are held, shared, or of another library, whose names match a pattern by the rules of `KEYS` in
   * Redis: `*`, `?`, `[a-z]`, `[^a-z]` and a backslash. In no order, with each slot of a semaphore that is not free, and
   * each of them once. Sends nothing before the first is asked for, and changes nothing.
   *
   * For an operator: it walks through all keys of every server, about 10,000 a second, for the fences that the nodes
   * remember, and inspects each name. It goes only as far as the caller does, so that it never has all names in memory. A
   * lock of another library is listed only if this one has used its name. A lock that is acquired or released meanwhile
   * may be missed, and in a cluster one whose slot moves.
   *
   * @param pattern - default all.
   * @throws {@link LockInvalidArgument}: a wrong pattern. While it is iterated: {@link LockForbidden} without the right to
   * `SCAN`; at the end {@link LockUnavailable}, if so many servers could not be walked through that a lock may be missing;
   * {@link LockClosed}: the client is closed.
   *
   * @example
   * ```ts
   * for await (const { name, label, since } of redlock.listLocks("night:*")) {
   *   console.log(name, label, since);
   * }
   * ```
   */
  listLocks(pattern: string | Uint8Array = "*"): AsyncIterableIterator<LockView> {
    return this.#listed(this.#client.listing(checkedPattern(pattern)));
  }

  async *#listed(listing: Listing): AsyncIterableIterator<LockView> {
    for (;;) {
      const views = (await this.#ask(() => listPage(queue(), listing))) as NativeView[];
      if (views.length === 0) return;
      yield* views.map(viewOf);
    }
  }

  /**
   * Waits until a lock is free, without taking it; without a timeout for ever, and with 0 for one look. Resolves to
   * whether it was seen free before the end of the timeout. No polling: the nodes report a release.
   *
   * For work that one caller does and others only need, such as filling a cache: who does not get the lock waits, and
   * then uses what is there. Somebody else may have the lock a moment later, so this says nothing about who may work. A
   * lock that others wait to acquire may pass from one to the next without being seen free.
   *
   * @param name - as for {@link Redlock.lock}.
   * @param options - how to wait, or only the signal.
   * @throws {@link LockUnavailable} or {@link LockForbidden}: too few nodes answer to know, at first or for 10 s later on,
   * without the time for which nodes have no vote after a restart.
   * @throws {@link LockInvalidArgument} for a wrong name or option, and with the protocol `"setnx"`.
   * @throws {@link LockClosed}: the client is closed.
   * @throws the signal's reason, when `signal` is aborted.
   *
   * @example
   * ```ts
   * const lock = redlock.lock("page");
   * if (await lock.tryAcquire()) {
   *   await fillCache().finally(() => lock.release());
   * } else {
   *   await redlock.waitFree("page", { timeout: 5_000 });
   * }
   * const page = await readCache();
   * ```
   */
  async waitFree(name: string | Uint8Array, options?: AcquireOptions | AbortSignal): Promise<boolean> {
    const bytes = checkedName(name);
    const { timeout, signal } = given(options, ACQUIRE, HOW);
    return (await this.#ask(() => waitFree(queue(), this.#client, bytes, timeout), signal)) === "free";
  }

  /**
   * Deletes a lock that somebody else holds, or with a slot this one of a semaphore. Resolves to whose it was, or to
   * null if it was free, or has changed hands meanwhile: a new holder keeps it. The fence stays, so that the next
   * holder's is larger, and waiters are woken.
   *
   * For an operator: the former holder learns of it at its next renewal, within a third of its ttl, as a loss with the
   * reason `deleted`, or `taken` if another one holds the lock by then. It may still be at work until then. A shared lock
   * is not deleted. To release a lock of its own, a program uses {@link Lock.release}.
   *
   * @param name - as for {@link Redlock.lock}.
   * @param slot - of a semaphore, from 0.
   * @throws {@link LockUnavailable} or {@link LockForbidden} if no quorum of nodes confirms it;
   * {@link LockInvalidArgument}: a wrong name or slot, a shared lock, or a key that is not a lock.
   *
   * @example
   * ```ts
   * const broken = await redlock.breakLock("nightly");
   * console.log(broken ? `it was held by ${broken.label}` : "it was free");
   * ```
   */
  async breakLock(name: string | Uint8Array, slot?: number | null): Promise<LockView | null> {
    const bytes = checkedName(name);
    if (slot != null) expect("slot", slot, COUNT);
    const [view] = (await this.#ask(() => breakLock(queue(), this.#client, bytes, slot))) as NativeView[];
    return view === undefined ? null : viewOf(view);
  }

  /**
   * Finds out, for each node in the order of the addresses, what it can do, what this user may do, and what may lose
   * locks there: reachable, encrypted, role, version, optional commands, rights, eviction, persistence, replicas, free
   * connections, clock, and addresses that lead to the same server. Where sentinels name the node's primary, also
   * which of them answer, and whether locks outlive a failover. Each server with slots of a cluster is diagnosed, also
   * slots that cannot be locked, and whether locks outlive a failover.
   *
   * For an operator: it asks more than locks do, on connections of its own, and writes keys that begin with
   * `redlock:diagnose:` (after the client's `keyPrefix`) and expire after 10 s. Takes at most five times the client's
   * `connectTimeout`. A node that cannot be asked is part of the answer.
   *
   * @throws {@link LockClosed}: the client is closed.
   *
   * @example
   * ```ts
   * for (const { node, level, findings } of await redlock.diagnose()) {
   *   if (level !== "ok") console.log(node, findings);
   * }
   * ```
   */
  async diagnose(): Promise<Diagnosis[]> {
    return (await this.#ask(() => diagnose(queue(), this.#client))) as Diagnosis[];
  }

  /** Makes a call that may need a login, and waits for its result. */
  async #ask(start: () => Started, signal?: AbortSignal): Promise<unknown> {
    this.#provider?.refuseOwn();
    signal?.throwIfAborted();
    return unwrap(await outcome(unwrap(start()), signal));
  }

  /** What a logger writes. @internal */
  toJSON(): object {
    return { nodes: this.#client.addresses() };
  }

  /** @internal */
  [shown](): unknown {
    return Object.assign(new (class Redlock {})(), this.toJSON());
  }

  /** @internal */
  acquire(): never {
    throw new LockInvalidArgument(
      'a client has no acquire; write redlock.lock("name", { ttl: 10_000 }).acquire(), or lockAll(names) for several names',
    );
  }

  /** @internal */
  using(): never {
    throw new LockInvalidArgument(
      'a client has no using; write redlock.lock("name", { ttl: 10_000 }).using(async (signal) => { ... }), or ' +
        "lockAll(names) for several names",
    );
  }

  /**
   * Closes the client and releases the locks that were acquired with it. Acquires that wait, and new ones, fail with
   * `closed`. Other clients live on. From the call on, none of its locks is held. The promise waits up to `limit`, in
   * milliseconds, for the nodes to answer; the background goes on with what they have not answered by then, and such a
   * lock expires after its ttl at the latest. Another call waits for the first one.
   *
   * @throws {@link LockInvalidArgument}: a wrong limit or option.
   */
  async close(options?: { readonly limit?: number | undefined }): Promise<void> {
    const { limit = 500 } = checked(options, { limit: MILLISECONDS }, "{ limit: 500 }") ?? {};
    // Another round of the loop would be another `beforeExit`, whose listener may close it again.
    this.#closing ??= outcome(unwrap(close(queue(), this.#client, limit)));
    this.#forget();
    await this.#closing;
  }

  #forget(): void {
    this.#templates.clear();
    // From here on, only the locks keep it.
    this.#provider = undefined;
  }

  /** Closes the client at the end of an `await using` block, and waits for the release of its locks. */
  async [asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Closes the client at the end of a `using` block. The background releases its locks. */
  [dispose](): void {
    this.#client.closeNow();
    this.#forget();
  }
}
