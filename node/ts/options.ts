/** What locks and clients are made with. Nothing here is left when it runs. */

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
   * loop cannot stop it. A hung holder then blocks others forever, unless `maxHold` ends it.
   */
  readonly autoRenew?: boolean | null | undefined;
  /** The lock ends this long after it was acquired, even if it was extended; at least the ttl, by default no limit. */
  readonly maxHold?: number | null | undefined;
  /**
   * The lock stays taken for at least this long after it was acquired, even if it is released sooner: at most
   * 604 800 000, which is 7 days, default 0. With it, a short job does not run once more on a server whose clock is behind.
   * A release still succeeds at once. After a loss the time does not count. If it is longer than the ttl, a crashed holder
   * keeps others out until then, too. A lock of several names refuses it, and ignores that of its client.
   */
  readonly atLeast?: number | null | undefined;
  /**
   * By how much the lock counts as lost before others can have it: at most half the ttl, default 0. A holder that
   * cannot renew it has this long to stop. The lock is renewed sooner for it.
   */
  readonly margin?: number | null | undefined;
  /** Longest wait for one node's vote; default a quarter of the ttl, from 50 to 500. */
  readonly nodeTimeout?: number | null | undefined;
  /**
   * How long the grants of a node do not count after this process saw it restart, which a process that starts later has
   * not; default the ttl. 0 turns this off, for nodes that have each write on the disk before they answer
   * (`appendfsync always`).
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
   * true`, {@link Lock.fence} and {@link Lock.extend} fail with `invalid_argument`. So do `atLeast`, `margin`, `fenceTtl`
   * and `label` of the lock itself; those of its client are ignored. A crashed holder blocks others for at most 3 s
   * longer than the ttl. A release is sent only once. If the connection breaks before the answer to it or to an
   * acquire, the key stays until it expires. Older clients can still cause two holders, by a stall between GET and
   * GETSET, another ttl or a wrong clock. Never use one name in both protocols.
   */
  readonly protocol?: "plain" | "setnx" | null | undefined;
}

/** The options of a lock of one name: those of every lock, and its own. */
export interface NameOptions extends LockOptions {
  /**
   * Whether many holders may have the lock at once, the readers, but none of them together with a holder of the lock that
   * is not shared, the writer; default false. The writer is the ordinary lock of the same name, also that of a program
   * that knows nothing of sharing. While a writer waits, no new reader gets the lock. A reader cannot become a writer. Not
   * with `atLeast` or the protocol `"setnx"`.
   */
  readonly shared?: boolean | null | undefined;
}

/** The options of a client: the defaults of its locks, and its own. */
export interface ClientOptions extends LockOptions {
  /**
   * Longest time for one connection, from the look-up of the name to the node's first answers: 50 to 60 000, default
   * 2 000. A connection takes up to four round trips. Only clients have this option.
   */
  readonly connectTimeout?: number | null | undefined;
  /**
   * After how long without traffic a TCP connection is probed: 1 000 to 32 400 000, default 60 000, 0 for never. So what
   * is between here and the node does not take it for unused. Only clients have this option.
   */
  readonly keepalive?: number | null | undefined;
  /**
   * How many connections to each node blocking callers of this process may have; 1 to 64, default 8. Node has none: its
   * calls share the connections of the background, of which there are two. Only clients have this option.
   */
  readonly maxConnections?: number | null | undefined;
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
   * process alive. After `close`, it is called only for releases that are under way.
   *
   * @example
   * ```ts
   * const credentials = async () => ({ username: "app", password: await token(), expiresIn: 900_000 });
   * const redlock = new Redlock("rediss://cache.internal:6379", { credentials });
   * ```
   */
  readonly credentials?: Credentials | null | undefined;
  /**
   * PEM file with the certificates of the only CAs to trust, for nodes with `rediss://`; default the system's. A server
   * whose own certificate is in the file is trusted under every name, also if it is self-signed. A URL may name another
   * one with `?tls_ca=`, and likewise for the following options. The files are read when the client is made, and again
   * at a connect that finds them changed. A new version that cannot be used leaves the old one in force.
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

/** A user and a password for the nodes, as {@link Credentials} return them. */
export interface Login {
  /** The user; default "", the default user. */
  readonly username?: string | null | undefined;
  /** The password, or a token; not empty. */
  readonly password: string;
  /**
   * How long the servers accept this login, in milliseconds from the call of the function; by default it has no end. The
   * function is called again at 70 to 80 % of this time.
   */
  readonly expiresIn?: number | null | undefined;
}

/** A function that returns logins; see {@link ClientOptions.credentials}. */
export type Credentials = () => Login | PromiseLike<Login>;
