/// <reference lib="esnext.disposable" preserve="true" />
import { Client } from "#native";
import { outcome, queue } from "./calls.js";
import { LockInvalidArgument, unwrap } from "./errors.js";
import { Lock } from "./lock.js";
import { type Locked, wrap } from "./locked.js";
import { CLIENT_OPTIONS, checkedName, checkedNodes, LOCK_OPTIONS, values } from "./validate.js";

/**
 * The options of a lock, and of a client as the defaults of its locks. All durations are in milliseconds. `null` stands
 * for the built-in default, whatever the client's is.
 */
export interface LockOptions {
  /**
   * How long the nodes keep the lock unless it is extended: 100 to 86 400 000, default 10 000. A crashed holder blocks
   * others for at most this long.
   */
  readonly ttl?: number | null | undefined;
  /**
   * How long acquire may wait: 0 is one try; `null`, the default, waits for as long as others hold the lock, as do
   * `Infinity` and -1.
   */
  readonly timeout?: number | null | undefined;
  /**
   * Whether the background renews the lock every third of its ttl until it is released; default true. A busy event
   * loop cannot stop it. A hung holder then blocks others for ever, unless `maxHold` ends it.
   */
  readonly autoRenew?: boolean | null | undefined;
  /** The lock ends this long after it was acquired, even if it was extended; at least the ttl, by default no limit. */
  readonly maxHold?: number | null | undefined;
  /** Longest wait for one node's vote; default a quarter of the ttl, from 50 to 500. */
  readonly nodeTimeout?: number | null | undefined;
  /**
   * How long the grants of a node do not count after this process saw it restart; default the ttl. 0 turns this off,
   * for nodes whose data survives.
   */
  readonly restartDelay?: number | null | undefined;
  /**
   * How long a node remembers a name's fence after the last acquire or renewal; at least twice the ttl, default the
   * larger of one hour and twice the ttl.
   */
  readonly fenceTtl?: number | null | undefined;
  /** The label that inspection shows: at most 128 bytes without control characters; default `host:pid`, "" for none. */
  readonly label?: string | null | undefined;
  /**
   * `"setnx"` shares a key with code that still uses the older protocol of SETNX, GET and GETSET, whose value is the
   * Unix second up to which the lock is held; default `"plain"`.
   *
   * It works on one node, without a fence and without renewal: `autoRenew` is off, and several nodes, `autoRenew:
   * true`, {@link Lock.fence} and {@link Lock.extend} fail with `invalid_argument`. So do `fenceTtl` and `label` of the
   * lock itself; those of its client are ignored. A crashed holder blocks others for at most 3 s longer than the ttl. A
   * release is sent only once. If the connection breaks before the answer to it or to an acquire, the key stays until
   * it expires. Older clients can still cause two holders, by a stall between GET and GETSET, another ttl or a wrong
   * clock. Never use one name in both protocols.
   */
  readonly protocol?: "plain" | "setnx" | null | undefined;
}

/** The options of a client: the defaults of its locks, and its own. */
export interface ClientOptions extends LockOptions {
  /**
   * Longest time for one connection, from the look-up of the name to the node's first answers: 50 to 60 000, default
   * 2 000. A connection takes up to four round trips. Only clients have this option.
   */
  readonly connectTimeout?: number | null | undefined;
  /**
   * The key of a lock is this text and then the lock's name: 0 to 511 bytes of UTF-8, default none. The limits of names
   * apply to the whole. Errors and inspection show the whole. Only clients have this option.
   */
  readonly keyPrefix?: string | null | undefined;
}

/** What one node has under a lock's name. */
export type NodeView = {
  /** The node's address without user name or password. */
  readonly node: string;
  /** The key on the node: the client's `keyPrefix` and the name, with invalid UTF-8 replaced. */
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

const dispose: typeof Symbol.dispose = Symbol.dispose ?? Symbol.for("Symbol.dispose");

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
  readonly #client: Client;

  /**
   * @param nodes - 1 to 15 addresses: `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS,
   * `unix:///path?db=0&user=u&pass=p`, the same with `valkey`, or `memory://name` for a store inside this process that
   * excludes nobody outside it. Default: the environment variable `REDLOCK_URLS` (separated by commas), or if that is
   * not set `redis://127.0.0.1:6379`.
   * @param options - defaults for the locks of this client, and its own options.
   * @throws {@link LockInvalidArgument}: a wrong or unknown part of an address, a duplicate, or a wrong option.
   */
  constructor(nodes?: string | readonly string[], options?: ClientOptions) {
    this.#client = unwrap(Client.open(checkedNodes(nodes), values(options, CLIENT_OPTIONS)));
  }

  /**
   * Makes a lock with this name. Sends nothing.
   *
   * @param name - 1 to 512 bytes, of UTF-8 if given as a string; the key on the servers is the name, unchanged, after
   * the client's `keyPrefix`. Names that begin with `redlock:fence:` or `redlock:waiters:` are reserved.
   * @param options - options that replace those of the client.
   * @throws {@link LockInvalidArgument}: a wrong name or option, or a closed client.
   */
  lock(name: string | Uint8Array, options?: LockOptions): Lock {
    return Lock.of(unwrap(this.#client.lock(checkedName(name), values(options, LOCK_OPTIONS))));
  }

  /**
   * Wraps a function, so that each call runs under a fresh lock; see {@link locked}.
   *
   * @throws {@link LockInvalidArgument}: a wrong name or option, or a closed client.
   */
  get locked(): Locked {
    return (name: unknown, options: unknown, fn: unknown) => wrap(() => this, name, options, fn);
  }

  /**
   * Shows what every node has under this name, in the order of the addresses. Changes nothing.
   *
   * Takes at most the client's `nodeTimeout`, and its `connectTimeout` if connections have to be made. A node that
   * cannot be asked is part of the answer.
   *
   * @throws {@link LockInvalidArgument}: a wrong name, or a closed client.
   *
   * @example
   * ```ts
   * for (const view of await redlock.inspect("report")) {
   *   if (view.state === "held") console.log(`${view.node}: ${view.label}, fence ${view.fence}`);
   * }
   * ```
   */
  async inspect(name: string | Uint8Array): Promise<NodeView[]> {
    const bytes = checkedName(name);
    const id = unwrap(queue().inspect(this.#client, bytes));
    return unwrap(await outcome(id)) as NodeView[];
  }

  /** @internal */
  acquire(): never {
    throw new LockInvalidArgument('a client has no acquire; write redlock.lock("name", { ttl: 10_000 }).acquire()');
  }

  /** @internal */
  using(): never {
    throw new LockInvalidArgument(
      'a client has no using; write redlock.lock("name", { ttl: 10_000 }).using(async (signal) => { ... })',
    );
  }

  /**
   * Closes the client: calls on its locks fail with `invalid_argument` from now on, also those that wait, except calls
   * that end a hold. Held locks stay held.
   */
  close(): void {
    this.#client.close();
  }

  /** Closes the client at the end of a `using` block. */
  [dispose](): void {
    this.close();
  }
}
