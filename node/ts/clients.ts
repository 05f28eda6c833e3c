/**
 * The nodes of clients of other packages: where they connect to, and how they log in.
 *
 * Neither ioredis nor node-redis is imported: only options that they document are read. Redlock opens connections of its
 * own, so what only concerns theirs, such as retries and timeouts, is passed over. What would change the server, the
 * login, the keys or the checks of TLS, and cannot be carried over, is refused.
 */

import { LockInvalidArgument } from "./errors.js";
import type { Credentials, Login } from "./options.js";

/**
 * A client of ioredis (`Redis`, `Cluster`) or of node-redis (`createClient`), or the options that one is made with, such
 * as BullMQ's `connection`. Of a cluster or sentinels of node-redis, only the options, because their clients hide them.
 */
export interface RedisClient {
  readonly options?: object | undefined;
  readonly url?: string | undefined;
  readonly host?: string | undefined;
  readonly port?: number | undefined;
  readonly path?: string | undefined;
  readonly username?: string | null | undefined;
  readonly password?: string | null | undefined;
  readonly db?: number | undefined;
  readonly database?: number | undefined;
  readonly tls?: object | boolean | null | undefined;
  readonly isCluster?: boolean | undefined;
  readonly redisOptions?: object | undefined;
  readonly sentinels?: object | null | undefined;
  readonly socket?: object | undefined;
  readonly rootNodes?: readonly object[] | undefined;
  readonly sentinelRootNodes?: readonly object[] | undefined;
}

/** The options that name a server. */
type Server = "url" | "host" | "port" | "path" | "sentinels" | "socket" | "rootNodes" | "sentinelRootNodes";

/** Options as they are written into the call, with others of their package. One of them names a server. */
type Written = { readonly [option: string]: unknown } & { [K in Server]: Record<K, unknown> }[Server];

type Client = RedisClient | Written;

/** An address or a client, or several. */
export type Nodes = string | Client | readonly (string | Client)[];

/** The options of other packages that are looked at. */
type Option =
  | ("options" | "isCluster" | "isOpen" | "url" | "host" | "port" | "path" | "db" | "username" | "password" | "tls")
  | ("Connector" | "keyPrefix" | "natMap" | "redisOptions" | "startupNodes" | "useSRVRecords")
  | (
      | "enableTLSForSentinelMode"
      | "name"
      | "role"
      | "sentinelPassword"
      | "sentinelTLS"
      | "sentinelUsername"
      | "sentinels"
    )
  | ("credentials" | "credentialsProvider" | "database" | "socket" | "type")
  | ("defaults" | "nodeAddressMap" | "nodeClientOptions" | "rootNodes" | "sentinelClientOptions" | "sentinelRootNodes")
  | ("ca" | "cert" | "checkServerIdentity" | "ciphers" | "key" | "passphrase" | "pfx" | "secureContext")
  | ("minVersion" | "rejectUnauthorized" | "servername");

type Options = { readonly [name in Option]?: unknown };

/** Our options that matter here. */
export type Own = {
  readonly [name in
    | "credentials"
    | "keyPrefix"
    | "passwordFile"
    | "tlsCa"
    | "tlsCert"
    | "tlsKey"
    | "tlsServerName"]?: unknown;
};

/** The options that an address cannot have. */
export interface Defaults {
  keyPrefix?: string;
  credentials?: Credentials;
}

/** What one client connects to. */
interface Found {
  /** What stands behind `redis` in the scheme. */
  kind: "" | "+cluster" | "+sentinel";
  servers: string[];
  /** The path of a socket, instead of servers. */
  socket?: string | undefined;
  master?: unknown;
  db?: unknown;
  username?: unknown;
  password?: unknown;
  tls: Map<string, string> | undefined;
  provider?: unknown;
  keyPrefix?: unknown;
}

const KEYS: readonly Option[] = [
  "options",
  "url",
  "host",
  "port",
  "path",
  "sentinels",
  "socket",
  "rootNodes",
  "sentinelRootNodes",
  "startupNodes",
  "db",
  "database",
  "username",
  "password",
  "tls",
  "credentialsProvider",
];

/** How long a login of a `credentialsProvider` is kept, in milliseconds. Its package asks it at every connect. */
const LASTS = 300_000;

/** An address lists no more servers. Any of a cluster's knows the others. */
const SEEDS_MOST = 15;

/** What is refused of TLS, the option of ours that replaces it, and the rest of the message. */
const TLS_REFUSED: readonly (readonly [Option, keyof Own | undefined, string])[] = [
  ["ca", "tlsCa", "give the option tlsCa, the path of the file"],
  ["cert", "tlsCert", "give the options tlsCert and tlsKey, the paths of the files"],
  ["key", "tlsKey", "give the options tlsCert and tlsKey, the paths of the files"],
  ["pfx", "tlsKey", "give the options tlsCert and tlsKey, the paths of files in PEM form"],
  ["passphrase", "tlsKey", "give the option tlsKey, with a key that is not encrypted"],
  [
    "checkServerIdentity",
    "tlsServerName",
    "the name in a certificate is always checked; tlsServerName sets another one",
  ],
  ["secureContext", undefined, "give the options tlsCa, tlsCert and tlsKey"],
  ["ciphers", undefined, "TLS 1.2 and 1.3 are used with the ciphers that are safe"],
];

/** Methods of clients of node-redis for a cluster, sentinels or a pool, which hide the options that they have. */
const HIDING = ["getRandomNode", "getMasterNode", "totalClients"];

/** Whether a value can be read as a client. The parts of a `URL` have the names of options, and other meanings. */
export function isClient(node: unknown): node is object {
  if (typeof node !== "object" || node === null || node instanceof URL) return false;
  return [...KEYS, ...HIDING].some((key) => key in node);
}

/** Returns the addresses of nodes of which some are clients, and what else is needed. `given` are the caller's options. */
export function read(nodes: readonly (string | object)[], given: Own): { urls: string[]; defaults: Defaults } {
  const found = nodes.map((node) => (typeof node === "string" ? node : ofClient(node as Options, given)));
  const defaults: Defaults = {};
  const clients = found.filter((node) => typeof node !== "string");
  const prefixes = new Set(clients.map(({ keyPrefix }) => text("keyPrefix", keyPrefix)));
  const [prefix = ""] = prefixes;
  if (given.keyPrefix === undefined && prefixes.size > 0) {
    const isShared = prefixes.size === 1 && (prefix === "" || clients.length === nodes.length);
    if (!isShared) refuse("keyPrefix", "all nodes have the same; give the option keyPrefix");
    if (prefix !== "") defaults.keyPrefix = prefix;
  }
  const provider = clients.find((client) => client.provider !== undefined)?.provider;
  if (provider !== undefined && given.credentials === undefined && given.passwordFile === undefined) {
    const fits = (node: string | Found) =>
      typeof node !== "string" && (node.provider === undefined ? Boolean(node.password) : node.provider === provider);
    if (!found.every(fits)) refuse("credentialsProvider", "all nodes have the same; give the option credentials");
    defaults.credentials = credentialsOf(provider as Options);
  }
  return { urls: found.map((node) => (typeof node === "string" ? node : urlOf(node))), defaults };
}

function ofClient(client: Options, given: Own): Found {
  if (client.isCluster === true) return ofCluster(client, given);
  if (client.options === undefined && HIDING.some((method) => method in client)) {
    refuse("the options", "give those that it is made with, or write the addresses");
  }
  const options = object(client.options) ?? client;
  if (options.rootNodes !== undefined) return ofRootNodes(options, given);
  if (options.sentinelRootNodes !== undefined) return ofSentinelRootNodes(options, given);
  const isOfNodeRedis =
    typeof client.isOpen === "boolean" || ["socket", "database", "credentialsProvider"].some((key) => key in options);
  const found = isOfNodeRedis ? ofNodeRedis(options, given) : ofIoredis(options, given);
  const whole = options.url === undefined ? found : { ...found, ...ofUrl(options.url, found) };
  // A client of node-redis makes a provider of its password.
  return whole.password ? { ...whole, provider: undefined } : whole;
}

/** Reads a client of ioredis, or its options. */
function ofIoredis(options: Options, given: Own): Found {
  for (const name of ["Connector", "natMap"] as const) {
    if (options[name]) refuse(name, "write the addresses of the servers");
  }
  const { db, username, password, keyPrefix, tls, path } = options;
  const login = { db, username, password, keyPrefix };
  if (options.sentinels) return { ...login, ...ofSentinels(options, given) };
  const socket = typeof path === "string" && path !== "" ? path : undefined;
  return { ...login, kind: "", servers: [place(options, 6379)], socket, tls: tlsOf(tls, given) };
}

function ofSentinels(options: Options, given: Own): Pick<Found, "kind" | "servers" | "master" | "tls"> {
  if (options.role === "slave") refuse('role "slave"', "a replica has no locks");
  for (const name of ["sentinelUsername", "sentinelPassword"] as const) {
    if (options[name]) {
      refuse(name, "write redis+sentinel://host1,host2/mymaster?sentinel_user=…&sentinel_password_file=…");
    }
  }
  const tls = tlsOf(options.enableTLSForSentinelMode === true ? options.tls : undefined, given);
  if (!isSame(tls, tlsOf(options.sentinelTLS, given))) {
    refuse("sentinelTLS", "the primary and its sentinels have the same options of TLS");
  }
  const servers = list(options.sentinels).map((sentinel) => place(sentinel, 26379));
  return { kind: "+sentinel", servers, master: options.name, tls };
}

/** Reads a `Cluster` of ioredis. */
function ofCluster({ options, startupNodes }: Options, given: Own): Found {
  const all = object(options) ?? {};
  for (const name of ["natMap", "useSRVRecords"] as const) {
    if (all[name]) refuse(name, "write redis+cluster://host1:6379,host2:6379");
  }
  const seeds: Found[] = (Array.isArray(startupNodes) ? startupNodes : []).map((seed: unknown) => {
    if (typeof seed === "number") return ofIoredis({ port: seed }, given);
    const node = typeof seed === "string" ? { url: seed.includes("://") ? seed : `redis://${seed}` } : object(seed);
    return ofClient(node ?? {}, given);
  });
  return seeded(seeds, ofIoredis({ keyPrefix: all.keyPrefix, ...object(all.redisOptions) }, given));
}

/** Reads a client of node-redis, or its options. */
function ofNodeRedis(options: Options, given: Own): Found {
  const { database, username, password, credentialsProvider } = options;
  const socket = object(options.socket) ?? {};
  const { path } = socket;
  const isEncrypted = socket.tls === true || String(options.url).startsWith("rediss:");
  return {
    kind: "",
    servers: [place(socket, 6379)],
    socket: typeof path === "string" ? path : undefined,
    ...{ db: database, username, password, provider: credentialsProvider },
    tls: tlsOf(isEncrypted ? socket : undefined, given),
  };
}

/** Reads the options of a cluster of node-redis. */
function ofRootNodes(options: Options, given: Own): Found {
  if (options.nodeAddressMap) refuse("nodeAddressMap", "write redis+cluster://host1:6379,host2:6379");
  const seeds = list(options.rootNodes).map((seed) => ofClient({ socket: undefined, ...seed }, given));
  return seeded(seeds, ofNodeRedis(object(options.defaults) ?? {}, given));
}

/** Returns a cluster with these seeds. The login is the common one, or that of a seed. */
function seeded(seeds: readonly Found[], common: Found): Found {
  const [first = common] = seeds;
  const encrypted = common.tls ?? first.tls;
  if (!seeds.every(({ tls }) => isSame(tls ?? common.tls, encrypted))) {
    refuse("tls", "all servers of a cluster have the same options of TLS");
  }
  const { username, password, provider } = common.password || common.provider ? common : first;
  return {
    ...common,
    kind: "+cluster",
    servers: seeds.flatMap(({ servers }) => servers).slice(0, SEEDS_MOST),
    username,
    password,
    provider,
    tls: encrypted,
  };
}

/** Reads the options of sentinels of node-redis. */
function ofSentinelRootNodes(options: Options, given: Own): Found {
  const sentinels = object(options.sentinelClientOptions) ?? {};
  if (sentinels.username || sentinels.password || sentinels.credentialsProvider) {
    const advice = "write redis+sentinel://host1,host2/mymaster?sentinel_user=…&sentinel_password_file=…";
    refuse("sentinelClientOptions with a login", advice);
  }
  const found = ofNodeRedis(object(options.nodeClientOptions) ?? {}, given);
  if (!isSame(found.tls, ofNodeRedis(sentinels, given).tls)) {
    refuse("sentinelClientOptions", "the primary and its sentinels have the same options of TLS");
  }
  const servers = list(options.sentinelRootNodes).map((sentinel) => place(sentinel, 26379));
  return { ...found, kind: "+sentinel", servers, master: options.name };
}

/** Reads the option `url`, which is stronger than others. Errors do not show it. */
function ofUrl(url: unknown, found: Found): Partial<Found> {
  if (typeof url !== "string" || !URL.canParse(url)) refuse("url", "write an address such as redis://127.0.0.1:6379");
  const { protocol, hostname, port, pathname, search, username, password } = new URL(url);
  if (!["redis:", "rediss:"].includes(protocol) || search !== "") {
    refuse("url", "only redis:// and rediss:// without parameters are read; give the address itself to redlock");
  }
  const read: Partial<Found> = { servers: [`${hostname || "localhost"}:${port || 6379}`], socket: undefined };
  if (username !== "") read.username = decoded(username);
  if (password !== "") read.password = decoded(password);
  if (pathname.length > 1) read.db = pathname.slice(1);
  if (protocol === "rediss:") read.tls = found.tls ?? new Map();
  return read;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    refuse("url", "write a plain % in its user or password as %25");
  }
}

/** Returns the parameters of an address with TLS; undefined without TLS. */
function tlsOf(tls: unknown, given: Own): Map<string, string> | undefined {
  if (!tls) return undefined;
  const options = object(tls) ?? {};
  if (options.rejectUnauthorized === false && given.tlsCa === undefined) {
    const advice = "certificates are always checked; give the option tlsCa, the path of the file of the CA or of a ";
    refuse("rejectUnauthorized", `${advice}self-signed certificate`);
  }
  for (const [name, ours, advice] of TLS_REFUSED) {
    if (options[name] && (ours === undefined || given[ours] === undefined)) refuse(`tls.${name}`, advice);
  }
  if (options.minVersion === "TLSv1.3") refuse("tls.minVersion", "let the server refuse TLS 1.2");
  const { servername } = options;
  return new Map(
    servername && given.tlsServerName === undefined ? [["tls_server_name", encoded("servername", servername)]] : [],
  );
}

function isSame(one: Found["tls"], other: Found["tls"]): boolean {
  return JSON.stringify(one && [...one]) === JSON.stringify(other && [...other]);
}

function urlOf({ kind, servers, socket, master, db, username, password, tls }: Found): string {
  const [user, secret] = [encoded("username", username), encoded("password", password)];
  const database = encoded("db", db);
  if (socket !== undefined) {
    const parameters = { db: database, user, pass: secret };
    const query = Object.entries(parameters).flatMap(([name, value]) => (value === "" ? [] : [`${name}=${value}`]));
    return `unix://${socket.split("/").map(encodeURIComponent).join("/")}?${query.join("&")}`;
  }
  const login = user === "" && secret === "" ? "" : `${user}:${secret}@`;
  const path = kind === "+sentinel" ? `/${encoded("name", master)}/${database}` : `/${database}`;
  const query = [...(tls ?? [])].map(([name, value]) => `?${name}=${value}`).join("");
  return `redis${tls === undefined ? "" : "s"}${kind}://${login}${servers.join(",")}${path}${query}`;
}

/** Makes the option `credentials` of a provider of node-redis. */
function credentialsOf(provider: Options): Credentials {
  const { type, credentials } = provider;
  if (type !== "async-credentials-provider" || typeof credentials !== "function") {
    refuse("credentialsProvider", "only one that is asked can be read; give the option credentials");
  }
  return async () => {
    const { username, password } = (await credentials.call(provider)) as Login;
    return { username, password, expiresIn: LASTS };
  };
}

function place({ host, port }: Options, defaultPort: number): string {
  const name = text("host", host) || "localhost";
  return `${name.includes(":") ? `[${name}]` : encodeURIComponent(name)}:${encoded("port", port ?? defaultPort)}`;
}

function encoded(option: string, value: unknown): string {
  return encodeURIComponent(text(option, value));
}

/** Returns the text of a value; empty if there is none. */
function text(option: string, value: unknown): string {
  if (value === undefined || value === null) return "";
  const isRight = typeof value === "number" || (typeof value === "string" && value.isWellFormed());
  if (!isRight) refuse(option, "it must be a string without lone surrogates, or a number");
  return String(value);
}

function object(value: unknown): Options | undefined {
  return typeof value === "object" && value !== null ? (value as Options) : undefined;
}

function list(value: unknown): Options[] {
  return Array.isArray(value) ? value.map((item: unknown) => object(item) ?? {}) : [];
}

function refuse(what: string, advice: string): never {
  throw new LockInvalidArgument(`cannot carry over ${what} from a client; ${advice}`, { option: "nodes" });
}
