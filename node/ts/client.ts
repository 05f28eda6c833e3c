/// <reference lib="esnext.disposable" preserve="true" />
import { Client, diagnose, inspect } from "#native";
import { outcome, queue } from "./calls.js";
import { type Credentials, Provider } from "./credentials.js";
import { LockInvalidArgument, unwrap } from "./errors.js";
import { Lock } from "./lock.js";
import { type Locked, wrap } from "./locked.js";
import { Templates } from "./template.js";
import { CLIENT_OPTIONS, checkedName, checkedNodes, checkedOptions, clientValues, LOCK_OPTIONS } from "./validate.js";

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
  /**
   * File with the password for nodes whose URL has none, without one line end at its end; default none. It is read at
   * every connect. The user is the URL's, by default the default user. Only clients have this option, and the following
   * ones.
   */
  readonly passwordFile?: string | null | undefined;
  /**
   * Function that returns the login for nodes whose URL has none, or a promise of it; default none. For tokens that end.
   * It is called without arguments on the event loop of this thread: at the first connect, ahead of the end of each
   * login, and after a server rejected one. A new login is also sent on the connections that exist. Clients with the
   * same nodes and the same function share their logins.
   *
   * A call may take 10 s, which includes the time when the event loop is busy. If it fails, the login before stays in
   * use, and the function is called again after 1 s, doubling to 30 s. Messages show only the class of what it throws.
   * The thrown value is the `cause` of the {@link LockUnavailable} that a call on a lock then rejects with.
   *
   * The function cannot use a lock of its own client: that call fails with `invalid_argument`. It does not keep the
   * process alive. After `close`, it is called only for locks that are still held.
   *
   * @example
   * ```ts
   * const credentials = async () => ({ username: "app", password: await token(), expiresIn: 900_000 });
   * const redlock = new Redlock("rediss://cache.internal:6379", { credentials });
   * ```
   */
  readonly credentials?: Credentials | null | undefined;
  /**
   * PEM file with the certificates of the only CAs to trust, for nodes with `rediss://`; default the system's. A URL may
   * name another one with `?tls_ca=`, and likewise for the following options. The files are read when the client is
   * made, and again at a connect that finds them changed. A new version that cannot be used leaves the old one in force.
   */
  readonly tlsCa?: string | null | undefined;
  /** PEM file with the client's certificate and its chain; default none. Needs `tlsKey`. */
  readonly tlsCert?: string | null | undefined;
  /** PEM file with the private key of `tlsCert`, not encrypted; default none. */
  readonly tlsKey?: string | null | undefined;
  /**
   * The name that a node's certificate must have, where the URL has another host, as through a tunnel; default the host.
   */
  readonly tlsServerName?: string | null | undefined;
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
  readonly #templates: Templates;
  #provider: Provider | undefined;

  /**
   * @param nodes - 1 to 15 addresses: `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS,
   * `unix:///path?db=0&user=u&pass=p`, `redis+sentinel://[user:password@]host1,host2/mymaster[/db]` for the primary that
   * sentinels name, `redis+cluster://[user:password@]host1,host2` for a Redis Cluster, the same with `valkey`, or
   * `memory://name` for a store inside this process that excludes nobody outside it. Default: the environment variable
   * `REDLOCK_URLS` (separated by commas), or if that is not set `redis://127.0.0.1:6379`.
   * @param options - defaults for the locks of this client, and its own options.
   * @throws {@link LockInvalidArgument}: a wrong or unknown part of an address, a duplicate, or a wrong option.
   */
  constructor(nodes?: string | readonly string[], options?: ClientOptions) {
    const urls = checkedNodes(nodes);
    const given = checkedOptions(options, CLIENT_OPTIONS);
    this.#provider = given?.credentials ? Provider.of(given.credentials) : undefined;
    this.#client = unwrap(Client.open(urls, clientValues(given), this.#provider?.native));
    this.#templates = new Templates(this.#client, given?.keyPrefix ?? "");
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
    const right = checkedName(name);
    return Lock.of(this.#templates.of(right, checkedOptions(options, LOCK_OPTIONS)), right, this.#provider);
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
    this.#provider?.refuseOwn();
    const id = unwrap(inspect(queue(), this.#client, bytes));
    return unwrap(await outcome(id)) as NodeView[];
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
   * @throws {@link LockInvalidArgument}: a closed client.
   *
   * @example
   * ```ts
   * for (const { node, level, findings } of await redlock.diagnose()) {
   *   if (level !== "ok") console.log(node, findings);
   * }
   * ```
   */
  async diagnose(): Promise<Diagnosis[]> {
    const id = unwrap(diagnose(queue(), this.#client));
    return unwrap(await outcome(id)) as Diagnosis[];
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
    this.#templates.clear();
    // From here on, only the locks keep it.
    this.#provider = undefined;
  }

  /** Closes the client at the end of a `using` block. */
  [dispose](): void {
    this.close();
  }
}
