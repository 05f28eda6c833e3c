import { AsyncLocalStorage } from "node:async_hooks";
import { types } from "node:util";
import { type LoginRequest, LoginRequests, Provider as NativeProvider } from "#native";
import { keepThrown, LockInvalidArgument } from "./errors.js";
import type { Credentials, Login } from "./options.js";
import { article, TEXT } from "./validate.js";
import { wakeable } from "./wake.js";

/** A login of the right types. */
interface Checked {
  readonly username: string;
  readonly password: string;
  readonly expiresIn: number | undefined;
}

/** One call of a function. */
interface Call {
  readonly provider: Provider;
  active: boolean;
}

/** The requests of this environment. The first client with `credentials` makes it: importing starts nothing. */
let requests: LoginRequests | undefined;

/** Each provider by its number. Its clients and locks keep it alive, because the function may refer to them. */
const providers = new Map<number, WeakRef<Provider>>();
const collected = new FinalizationRegistry<number>((number) => providers.delete(number));
let lastNumber = 0;

/** The provider of each function: clients with one function share their logins. */
const ofFunction = new WeakMap<Credentials, Provider>();

/** The call to which the running code belongs. */
const calling = new AsyncLocalStorage<Call>();
let activeCalls = 0;

/**
 * A function that returns logins, and its native half.
 *
 * @internal
 */
export class Provider {
  readonly native: NativeProvider;
  readonly #credentials: Credentials;

  private constructor(credentials: Credentials) {
    requests ??= wakeable(LoginRequests, wake, isPending);
    lastNumber += 1;
    this.native = new NativeProvider(requests, lastNumber);
    this.#credentials = credentials;
    providers.set(lastNumber, new WeakRef(this));
    collected.register(this, lastNumber);
  }

  static of(credentials: Credentials): Provider {
    const provider = ofFunction.get(credentials) ?? new Provider(credentials);
    ofFunction.set(credentials, provider);
    return provider;
  }

  /** Refuses a call on a lock within the function. The call would wait for a login, and so for itself. */
  refuseOwn(): void {
    const call = calling.getStore();
    if (call?.active && call.provider === this) {
      throw new LockInvalidArgument("a credentials provider cannot use a lock of its own client; use another client");
    }
  }

  async call(): Promise<unknown> {
    const credentials = this.#credentials;
    const call: Call = { provider: this, active: true };
    activeCalls += 1;
    try {
      return await calling.run(call, () => credentials());
    } finally {
      call.active = false;
      activeCalls -= 1;
      // Before Node 24, it makes every promise of the program slower.
      if (activeCalls === 0) calling.disable();
    }
  }
}

function wake(): void {
  for (const request of requests?.take() ?? []) void respond(request);
}

/** A call on a lock keeps the process alive while it waits for a login. A request does not. */
function isPending(): boolean {
  return false;
}

/** Answers a request. Never rejects. */
async function respond({ id, provider: number }: LoginRequest): Promise<void> {
  const provider = providers.get(number)?.deref();
  if (provider === undefined) {
    requests?.fail(id, "its client was garbage-collected");
    return;
  }
  try {
    const login = checkedLogin(await provider.call());
    if (typeof login === "string") requests?.fail(id, `TypeError: ${login}`, keepThrown(new TypeError(login)));
    else requests?.answer(id, login.username, login.password, login.expiresIn);
  } catch (thrown) {
    requests?.fail(id, kindOf(thrown), keepThrown(thrown));
  }
}

/** Checks what a function returned. Returns what is wrong with it, without any part of it. */
function checkedLogin(login: unknown): Checked | string {
  if (typeof login !== "object" || login === null || Array.isArray(login)) {
    return `a login must be { username, password, expiresIn }, not ${article(login)}`;
  }
  // With a misspelt one, the login would be another one.
  if (Object.keys(login).some((key) => !["username", "password", "expiresIn"].includes(key))) {
    return "a login has no properties but username, password and expiresIn";
  }
  const { username, password, expiresIn } = login as { [Key in keyof Login]?: unknown };
  const user = username ?? "";
  if (!isText(user)) return `username must be ${TEXT.says}, not ${article(user)}`;
  if (!isText(password)) return `password must be ${TEXT.says}, not ${article(password)}`;
  if (password === "") return "password is empty";
  const lasts = expiresIn ?? undefined;
  if (lasts !== undefined && !isDuration(lasts)) {
    return `expiresIn must be a positive number of milliseconds, not ${typeof lasts === "number" ? lasts : article(lasts)}`;
  }
  return { username: user, password, expiresIn: lasts };
}

function isText(value: unknown): value is string {
  return TEXT.fits(value);
}

function isDuration(value: unknown): value is number {
  return typeof value === "number" && value > 0 && value < Number.POSITIVE_INFINITY;
}

/** Returns what is shown of a thrown value: the name of an error's class, or else its type. The text may be secret. */
function kindOf(thrown: unknown): string {
  try {
    if (!types.isNativeError(thrown) && !(thrown instanceof Error)) return typeof thrown;
    const { name } = thrown.constructor;
    return typeof name === "string" && name !== "" ? name : "Error";
  } catch {
    // An exotic object.
    return typeof thrown;
  }
}
