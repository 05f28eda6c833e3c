/// <reference lib="esnext.disposable" preserve="true" />
import { Client } from "#native";
import { outcome, queue } from "./calls.js";
import { unwrap } from "./errors.js";
import { Lock } from "./lock.js";
import { CLIENT_OPTIONS, checkedName, checkedNodes, LOCK_OPTIONS, values } from "./validate.js";

/** What may be set for a client, as the default of its locks, and for a lock. All durations are in milliseconds. */
export interface LockOptions {
  /**
   * How long the nodes keep the lock unless it is extended: 100 to 86 400 000, default 10 000. A crashed holder blocks
   * others for at most this long.
   */
  readonly ttl?: number | undefined;
  /** How long acquire may wait: 0 is one try, `null`, the default, waits for as long as others hold the lock. */
  readonly timeout?: number | null | undefined;
  /**
   * Whether the background extends the lock every third of its ttl until it is released; default true. A busy event
   * loop cannot stop it. A hung holder then blocks others for ever, unless `maxHold` ends it.
   */
  readonly autoRenew?: boolean | undefined;
  /** The lock ends this long after it was acquired, however often it was extended; at least the ttl, default never. */
  readonly maxHold?: number | undefined;
  /** Longest wait for one node's vote; default a quarter of the ttl, from 50 to 500. */
  readonly nodeTimeout?: number | undefined;
  /**
   * How long the grants of a node do not count after this process saw it restart; default the ttl. 0 turns that off,
   * for nodes whose data survives.
   */
  readonly restartDelay?: number | undefined;
  /**
   * How long a node remembers a name's fence after the last acquire or renewal; at least twice the ttl, default the
   * larger of one hour and twice the ttl.
   */
  readonly fenceTtl?: number | undefined;
  /** The label that inspection shows: at most 128 bytes without control characters; default `host:pid`, "" for none. */
  readonly label?: string | undefined;
  /**
   * `"setnx"` is for a key that is shared with code which still uses the older protocol of SETNX, GET and GETSET, where
   * the value is the Unix second up to which the lock is held; default `"plain"`.
   *
   * It is for one node, and has neither a fence nor a renewal: `autoRenew` is off, and several nodes, `autoRenew:
   * true`, {@link Lock.fence} and {@link Lock.extend} are `invalid_argument`. So are `fenceTtl` and `label` of the lock
   * itself; those of its client are passed over. A crashed holder blocks others for at most 3 s longer than the ttl. A
   * release is sent once only: where its answer, or that to an acquire, is lost with the connection, the key stays
   * until its time is over. Older clients can still make two holders: by a stall between GET and GETSET, by another
   * ttl, by a wrong clock. Never use one name in both protocols.
   */
  readonly protocol?: "plain" | "setnx" | undefined;
}

/** What may be set for a client: the defaults of its locks, and its own. */
export interface ClientOptions extends LockOptions {
  /**
   * Longest time for one connection, from the look-up of the name to the node's first answers: 50 to 60 000, default
   * 2 000. It takes up to four round trips. An option of the client alone.
   */
  readonly connectTimeout?: number | undefined;
}

/** What one node has under a lock's name. */
export type NodeView = {
  /** The node's address without user name or password. */
  readonly node: string;
} & (
  | { /** Nothing: on this node the lock is free. */ readonly state: "free" }
  | {
      /** A lock of this library. */
      readonly state: "held";
      /** The owner's label; left out if it has none. */
      readonly label?: string;
      /** The fence on this node. */
      readonly fence: number;
      /** How long the node keeps the key unless it is extended, in milliseconds; null for a key without an end. */
      readonly ttlLeft: number | null;
    }
  | {
      /** Something else: a lock of another library, or a key that is no lock. */
      readonly state: "foreign";
      /** How long the node keeps the key, in milliseconds; null for a key without an end. */
      readonly ttlLeft: number | null;
    }
  | {
      /** The node could not be asked. */
      readonly state: "unavailable";
      /** Why: what it answered, or what the connection came to. */
      readonly error: string;
    }
);

const dispose: typeof Symbol.dispose = Symbol.dispose ?? Symbol.for("Symbol.dispose");

/**
 * A client for one set of nodes: one server, or several independent ones of which a quorum must agree.
 *
 * Makes no connection before the first call on a lock, and never keeps the process alive. All clients of a process
 * share what it knows about a node, also those that are made later or list other nodes beside it.
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
   * excludes nobody outside it. Default: the environment variable `REDLOCK_URLS` (separated by commas), or where that
   * is not set `redis://127.0.0.1:6379`.
   * @param options - defaults for the locks of this client, and its own.
   * @throws {@link LockInvalidArgument}: a wrong or unknown part of an address, a duplicate, or a wrong option.
   */
  constructor(nodes?: string | readonly string[], options?: ClientOptions) {
    this.#client = unwrap(Client.open(checkedNodes(nodes), values(options, CLIENT_OPTIONS)));
  }

  /**
   * A lock with this name. Sends nothing.
   *
   * @param name - 1 to 512 bytes of anything; the key on the servers is the name, unchanged, a string as UTF-8. Names
   * that begin with `redlock:fence:` or `redlock:waiters:` are reserved.
   * @param options - in place of the client's.
   * @throws {@link LockInvalidArgument}: a wrong name or option, or a closed client.
   */
  lock(name: string | Uint8Array, options?: LockOptions): Lock {
    return Lock.of(unwrap(this.#client.lock(checkedName(name), values(options, LOCK_OPTIONS))));
  }

  /**
   * What every node has under this name, in the order of the addresses. Changes nothing.
   *
   * Takes at most the client's `connectTimeout` where connections have to be made, and its `nodeTimeout`. A node that
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

  /**
   * Ends the client: calls on its locks are `invalid_argument` from now on, also those that wait, except calls that end
   * a hold. Held locks stay held.
   */
  close(): void {
    this.#client.close();
  }

  /** As {@link Redlock.close}, at the end of a `using` block. */
  [dispose](): void {
    this.close();
  }
}
