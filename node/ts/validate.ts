import { types } from "node:util";
import { type Known, knownOptions, unknown } from "#native";
import { isClient } from "./clients.js";
import { errorOf, LockInvalidArgument } from "./errors.js";

/** A kind of value: how a message describes it, and whether a value is of it. */
interface Kind {
  readonly says: string;
  readonly fits: (value: unknown) => boolean;
}

export const MILLISECONDS: Kind = { says: "a number of milliseconds", fits: (value) => typeof value === "number" };
export const MILLISECONDS_OR_NULL: Kind = {
  says: "a number of milliseconds, or null to wait forever",
  fits: (value) => value === null || typeof value === "number",
};
export const BOOLEAN: Kind = { says: "true or false", fits: (value) => typeof value === "boolean" };
export const TEXT: Kind = {
  says: "a string without lone surrogates",
  fits: (value) => typeof value === "string" && value.isWellFormed(),
};
export const COUNT: Kind = { says: "a whole number", fits: (value) => typeof value === "number" };
const LOGINS: Kind = { says: "a function that returns a login", fits: (value) => typeof value === "function" };
export const SIGNAL: Kind = {
  says: "an AbortSignal",
  fits: isSignal,
};

/** Whether a value is an AbortSignal, of this realm or another. Jest and `node:vm` have their own. */
export function isSignal(value: unknown): value is AbortSignal {
  if (typeof value !== "object" || value === null || !("aborted" in value)) return false;
  return "addEventListener" in value && typeof value.addEventListener === "function";
}

/** The kind of each option, by name. */
export type Kinds = Readonly<Record<string, Kind>>;

const KINDS = {
  duration: orNull(MILLISECONDS),
  timeout: MILLISECONDS_OR_NULL,
  flag: orNull(BOOLEAN),
  count: orNull(COUNT),
  text: orNull(TEXT),
};
const OPTIONS = knownOptions();

/** The options of a client. Only `credentials` is not a value that the native half reads. */
export const CLIENT_OPTIONS: Kinds = { ...kinds(OPTIONS), credentials: orNull(LOGINS) };
/** The options of a lock. */
export const LOCK_OPTIONS = kinds(OPTIONS.filter(({ ofClient }) => !ofClient));
/** The options of a lock of one name. Only `shared` is not a value that the native half reads. */
export const NAME_OPTIONS: Kinds = { ...LOCK_OPTIONS, shared: orNull(BOOLEAN) };
/** How a detached lock is attached. Only `signal` is not a value that the native half reads. */
export const ATTACH_OPTIONS: Kinds = {
  ttl: orNull(MILLISECONDS),
  timeout: MILLISECONDS_OR_NULL,
  signal: SIGNAL,
};
/** The options up to the last one of a lock. The native half knows an option by its position. */
const UP_TO_LAST = OPTIONS.slice(0, OPTIONS.findLastIndex(({ ofClient }) => !ofClient) + 1);

function orNull({ says, fits }: Kind): Kind {
  return { says: `${says}, or null for the default`, fits: (value) => value === null || fits(value) };
}

function kinds(known: readonly Known[]): Kinds {
  return Object.fromEntries(known.map(({ name, kind }) => [name, KINDS[kind]]));
}

/** Options without the undefined ones, which count as not given. */
export type Given<T> = { -readonly [K in keyof T]?: Exclude<T[K], undefined> };

/**
 * Checks that each option is known and of its kind, and returns a copy. Amounts are checked natively.
 *
 * Only the copy is used after that: an accessor may return another value the next time.
 *
 * @param example - options as they should be, for the error.
 */
export function checked<T extends object>(options: T | undefined, kinds: Kinds, example: string): Given<T> | undefined {
  if (options === undefined) return undefined;
  // All others, such as a Map, have no options of their own, and would be ignored without a word.
  if (!["object", "Module"].includes(typeOf(options))) {
    throw new LockInvalidArgument(`options must be an object such as ${example}, not ${article(options)}`);
  }
  for (const option of Object.keys(kinds)) {
    // It would be ignored without a word.
    if (option in options && !Object.prototype.propertyIsEnumerable.call(options, option)) {
      refuse(option, `${option} is inherited or hidden, and is not read; pass a plain object such as ${example}`);
    }
  }
  const given: Record<string, unknown> = {};
  for (const option of Object.keys(options)) {
    const value = (options as Record<string, unknown>)[option];
    if (value === undefined) continue;
    const kind = Object.hasOwn(kinds, option) ? kinds[option] : undefined;
    if (kind === undefined) throw errorOf(unknown(option));
    expect(option, value, kind);
    given[option] = value;
  }
  return given as Given<T>;
}

/** Checks the options of a client or a lock; see {@link checked}. */
export function checkedOptions<T extends object>(options: T | undefined, kinds: Kinds): Given<T> | undefined {
  return checked(options, kinds, "{ ttl: 10_000 }");
}

/** Returns the value of each option of a client that the native half knows, in its order. */
export function clientValues(given: object | undefined): unknown[] | undefined {
  return given && OPTIONS.map(({ name }) => (given as Record<string, unknown>)[name]);
}

/** Returns the value of each option of a lock, by position. */
export function values(given: object | undefined): unknown[] | undefined {
  return given && UP_TO_LAST.map(({ name }) => (given as Record<string, unknown>)[name]);
}

/** Refuses a value of the wrong type. The message never shows the value, which may be a secret. */
export function expect(what: string, value: unknown, kind: Kind): void {
  if (!kind.fits(value)) refuse(what, `${what} must be ${kind.says}, not ${article(value)}`);
}

/** A name as the caller gave it. */
export type Name = string | Uint8Array;

/** Checks the type of a lock's name. Its length and its first bytes are checked natively. */
export function checkedName(name: unknown): Name {
  if (isName(name)) return name;
  if (Array.isArray(name)) {
    refuse("name", "the name of a lock must be a string or a Uint8Array, not an array; lockAll(names) takes several");
  }
  refuseName("name", "the name of a lock", name);
}

/** Checks the type of a pattern for names. */
export function checkedPattern(pattern: unknown): Name {
  if (isName(pattern)) return pattern;
  refuseName("pattern", "pattern", pattern);
}

/**
 * Checks the types of a lock's names, and returns a copy, because an array and bytes may change later. Their number is
 * checked natively.
 */
export function checkedNames(names: unknown): Name[] {
  if (!Array.isArray(names)) refuse("names", `names must be an array of names, not ${article(names)}`);
  // A hole in the array is undefined.
  return Array.from(names, (name: unknown, index) => {
    if (!isName(name)) refuseName("names", `names[${index}]`, name);
    return typeof name === "string" ? name : new Uint8Array(name);
  });
}

/** Whether a value is text or bytes that reach the native half as they are. */
function isName(value: unknown): value is Name {
  // The native half would replace each lone surrogate with the same character, so that two names would be one lock.
  return typeof value === "string" ? value.isWellFormed() : types.isUint8Array(value);
}

/** Refuses a name. `what` is what a message calls it. */
function refuseName(option: string, what: string, name: unknown): never {
  if (typeof name === "string") {
    refuse(option, `${what} must not contain lone surrogates; pass a Uint8Array for arbitrary bytes`);
  }
  refuse(option, `${what} must be a string or a Uint8Array, not ${article(name)}`);
}

/** Checks the types of nodes: addresses and clients. Their parts are checked later. */
export function checkedNodes(nodes: unknown): (string | object)[] | undefined {
  if (nodes === undefined) return undefined;
  const list: unknown[] = Array.isArray(nodes) ? nodes : [nodes];
  for (const node of list) {
    if (typeof node !== "string" && !isClient(node)) {
      refuse(
        "nodes",
        `a node must be a URL such as "redis://127.0.0.1:6379", or a client of ioredis or node-redis, not ` +
          `${article(node)}; redlock opens its own connections`,
      );
    }
  }
  return list as (string | object)[];
}

/** Refuses a function whose body does not run during the call. */
export function refuseGenerator(what: string, fn: unknown): void {
  if (!types.isGeneratorFunction(fn)) return;
  refuse(what, `${what} is a generator, and its body would run after the release; call lock(name).using inside of it`);
}

function refuse(option: string, message: string): never {
  throw new LockInvalidArgument(message, { option });
}

/** Returns the type of a value for a message, with its article. */
export function article(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (typeof value === "string") return value.isWellFormed() ? "a string" : "a string with lone surrogates";
  if (value instanceof URL) return "a URL object (give its href)";
  const type = typeOf(value);
  return `${/^[AEOo]/.test(type) ? "an" : "a"} ${type}`;
}

/** Returns the type of a value; of an object of a class that JavaScript has, of whichever realm, that class. */
function typeOf(value: unknown): string {
  const name = Object.prototype.toString.call(value).slice("[object ".length, -1);
  return typeof value === "object" && name !== "Object" ? name : typeof value;
}
