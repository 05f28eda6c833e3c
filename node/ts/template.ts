import type { Client, Template as NativeTemplate } from "#native";
import { unwrap } from "./errors.js";
import { type Given, values } from "./validate.js";

/** How many are kept for each client. Programs give their locks few different options. */
const KEPT = 8;

/** The longest name of a lock in bytes, and the most bytes that one unit of a string becomes. */
const NAME_MOST = 512;
const UNIT_MOST = 3;
/** The beginning of every name that is reserved. */
const RESERVED = "redlock:";

/** Options that were checked natively, for locks that are made without another native call. */
export interface Template {
  readonly number: number;
  /** What the number stands for, as long as it is not collected as garbage. */
  readonly native: NativeTemplate;
  readonly values: readonly unknown[] | undefined;
}

/**
 * The templates of one client: the options of its locks, by value.
 *
 * A name needs no native check if it is certainly right. All others are checked natively.
 *
 * @internal
 */
export class Templates {
  readonly #client: Client;
  readonly #prefix: string;
  #kept: Template[] = [];

  constructor(client: Client, prefix: string) {
    this.#client = client;
    this.#prefix = prefix;
  }

  /** Returns the template for a lock, and refuses a wrong name, a wrong option and a closed client. */
  of(name: string | Uint8Array, options: Given<object> | undefined): Template {
    const given = values(options);
    const known = this.#find(given);
    if (known !== undefined && this.#isRight(name)) return known;
    const native = unwrap(this.#client.template(name, given));
    const template = { number: native.number(), native, values: given };
    if (known === undefined) {
      if (this.#kept.length === KEPT) this.#kept.shift();
      this.#kept.push(template);
    }
    return template;
  }

  /** Has the next lock checked natively, because the client was closed. */
  clear(): void {
    this.#kept = [];
  }

  #find(given: readonly unknown[] | undefined): Template | undefined {
    for (const template of this.#kept) if (isSame(template.values, given)) return template;
    return undefined;
  }

  /** Whether a name is certainly right, and not whether it is wrong. */
  #isRight(name: string | Uint8Array): boolean {
    if (typeof name !== "string" || name === "") return false;
    const key = this.#prefix + name;
    return key.length * UNIT_MOST <= NAME_MOST && !key.startsWith(RESERVED);
  }
}

function isSame(one: readonly unknown[] | undefined, other: readonly unknown[] | undefined): boolean {
  if (one === undefined || other === undefined) return one === other;
  for (let position = 0; position < one.length; position += 1) if (one[position] !== other[position]) return false;
  return true;
}
