import type { Client, Template as NativeTemplate } from "#native";
import { unwrap } from "./errors.js";
import { type Given, type Name, values } from "./validate.js";

/** How many are kept for each client. Programs give their locks few different options. */
const KEPT = 8;

/** The longest name of a lock in bytes, and the most bytes that one unit of a string becomes. */
const NAME_MOST = 512;
const UNIT_MOST = 3;
/** The most names of one lock. */
const NAMES_MOST = 16;
/** The beginning of every name that is reserved. */
const RESERVED = "redlock:";

/** Options that were checked natively, for locks that are made without another native call. */
export interface Template {
  readonly number: number;
  /** What the number stands for, as long as it is not collected as garbage. */
  readonly native: NativeTemplate;
  readonly values: readonly unknown[] | undefined;
}

/** Which locks: of one name, shared or not; of the terms of an election; of several names; or with so many permits. */
export type Kind = Parameters<Client["template"]>[0];

/**
 * The templates of one client. A template stands for the kind and the options of its locks, by value.
 *
 * A name needs no native check if it is certainly right. All others are checked natively.
 *
 * @internal
 */
export class Templates {
  readonly #client: Client;
  readonly #prefix: string;
  readonly #kept = new Map<Kind, Template[]>();

  constructor(client: Client, prefix: string) {
    this.#client = client;
    this.#prefix = prefix;
  }

  /** Returns the template for a lock, and refuses a wrong name, a wrong option and a closed client. */
  of(kind: Kind, name: Name | Name[], options: Given<object> | undefined): Template {
    const given = values(options);
    const kept = this.#kept.get(kind) ?? [];
    const known = find(kept, given);
    const isRight = this.#isRight(name);
    if (known !== undefined && isRight) return known;
    const native = unwrap(this.#client.template(kind, name, given));
    const template = { number: native.number(), native, values: given };
    if (known === undefined && isRight) {
      if (kept.length === KEPT) kept.shift();
      kept.push(template);
      this.#kept.set(kind, kept);
    }
    return template;
  }

  /** Has the next lock checked natively, because the client was closed. */
  clear(): void {
    this.#kept.clear();
  }

  /** Whether a name is certainly right, or several are that cannot be one. Not whether they are wrong. */
  #isRight(name: Name | Name[]): boolean {
    if (typeof name !== "string") return !ArrayBuffer.isView(name) && this.#areRight(name);
    if (name === "") return false;
    const key = this.#prefix + name;
    return key.length * UNIT_MOST <= NAME_MOST && !key.startsWith(RESERVED);
  }

  #areRight(names: Name[]): boolean {
    if (names.length > NAMES_MOST || new Set(names).size < 2) return false;
    return names.every((name) => typeof name === "string" && this.#isRight(name));
  }
}

function find(kept: readonly Template[], given: readonly unknown[] | undefined): Template | undefined {
  for (const template of kept) if (isSame(template.values, given)) return template;
  return undefined;
}

function isSame(one: readonly unknown[] | undefined, other: readonly unknown[] | undefined): boolean {
  if (one === undefined || other === undefined) return one === other;
  for (let position = 0; position < one.length; position += 1) if (one[position] !== other[position]) return false;
  return true;
}
