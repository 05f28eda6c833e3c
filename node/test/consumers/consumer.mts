import assert from "node:assert/strict";
import {
  type AcquireOptions,
  type Credentials,
  configure,
  countByName,
  Election,
  type ElectionOptions,
  type ErrorCode,
  election,
  type Histogram,
  inspect,
  inspectSemaphore,
  type Leader,
  type Lock,
  type LockedOptions,
  LockLost,
  type LockOptions,
  LockTimeout,
  type LockView,
  type Login,
  lock,
  lockAll,
  locked,
  type Metric,
  type NodeView,
  type Point,
  type RedisClient,
  Redlock,
  RedlockError,
  type RedlockEvent,
  semaphore,
  stats,
} from "redlock-rs";
import { type InstrumentOptions, instrument, uninstrument } from "redlock-rs/otel";
import { lose, MemoryServer } from "redlock-rs/testing";

const options: LockOptions = { ttl: 5_000, timeout: null, autoRenew: true, label: "consumer" };
using redlock = new Redlock(["memory://consumer"], options);

{
  await using held = await redlock.lock("foo").acquire();
  const fence: number = held.fence;
  assert.ok(fence > 0 && held.held);
  const whole: LockView = await redlock.inspect("foo");
  const since: Date | null = whole.since;
  assert.ok(whole.state === "held" && whole.fence === fence && since !== null && since.getTime() > 0);
  const nodes: readonly NodeView[] = whole.nodes;
  for (const view of nodes) {
    // @ts-expect-error: only a held lock has a fence
    assert.ok(view.fence);
    if (view.state !== "held") assert.fail(view.state);
    assert.equal(view.fence, fence);
    const left: number | null = view.ttlLeft;
    assert.ok(left !== null && view.label === "consumer");
  }
}
assert.equal((await redlock.inspect("foo")).state, "free");

const result: number = await redlock.lock("foo").using(async (signal, lock: Lock) => {
  signal.throwIfAborted();
  return lock.remaining;
});
assert.ok(result > 0);

async function explain(wait: AcquireOptions): Promise<ErrorCode | undefined> {
  try {
    await redlock.lock("foo").acquire(wait);
    return undefined;
  } catch (error) {
    if (error instanceof LockLost) return error.reason === "taken" ? error.code : undefined;
    if (error instanceof LockTimeout) {
      const code: "timeout" = error.code;
      return code;
    }
    if (error instanceof RedlockError) return error.retryable ? error.code : undefined;
    throw error;
  }
}

const held = redlock.lock(new Uint8Array([102, 111, 111]));
const won: boolean = await held.tryAcquire({ signal: new AbortController().signal });
assert.ok(won);
assert.equal(await explain({ timeout: 0 }), "timeout");
try {
  held.check();
} catch (error) {
  if (!(error instanceof RedlockError)) throw error;
  switch (error.code) {
    case "lost": {
      const lost: LockLost = error;
      assert.ok(lost.reason);
      break;
    }
    case "invalid_argument":
      assert.equal(error.option, undefined);
      break;
    default:
      // @ts-expect-error: only a loss has a reason
      assert.equal(error.reason, undefined);
  }
}
await held.extend(6_000);
await held.release();

const loss: LockLost | undefined = await held.lost().catch(() => undefined);
const isLocked: boolean = await held.isLocked();
assert.deepEqual([loss, isLocked], [undefined, false]);
assert.ok(await held.tryAcquire(new AbortController().signal));
await held.release();

const login: Login = { username: "app", password: "a token", expiresIn: 60_000 };
const credentials: Credentials = async () => login;
new Redlock("memory://consumer", { credentials: () => ({ password: "a token" }) }).close();
configure("memory://consumer", { credentials });
const connection: { host: string; port: number; maxRetriesPerRequest: null } = {
  host: "localhost",
  port: 6379,
  maxRetriesPerRequest: null,
};
const theirs: RedisClient = { options: connection };
for (const nodes of [connection, theirs, ["memory://a", theirs], { host: "localhost", password: "p", tls: {} }])
  new Redlock(nodes).close();
new Redlock({ host: "localhost", maxRetriesPerRequest: null }).close();
new Redlock({ rootNodes: [{ url: "redis://a" }], defaults: { password: "p" } }).close();
new Redlock([{ name: "m", sentinelRootNodes: [{ host: "a", port: 1 }] }]).close();
// @ts-expect-error: these are options of a lock.
assert.throws(() => new Redlock({ ttl: 5_000 }));
const double: (amount: number) => Promise<number> = locked("double", (amount: number) => 2 * amount);
const once: boolean = Date.now() > 0;
const perhaps: () => Promise<string | undefined> = redlock.locked("cron", { skipIfHeld: once }, async () => "done");
const passed: (n: number) => Promise<number | undefined> = redlock.locked(
  "cron",
  { skipIfHeld: once, passLock: true },
  async (lock: Lock, n: number) => n + lock.fence,
);
assert.ok((await perhaps()) === "done" && (await passed(1)) !== undefined);
const nightly: () => Promise<string | undefined> = redlock.locked("cron", { skipIfHeld: true }, async () => "done");
const pay: (user: string, amount: number) => Promise<number> = locked(
  (user: string) => `user:${user}`,
  { passLock: true, ttl: null },
  async (lock: Lock, user: string, amount: number) => lock.fence + user.length + amount,
);
const greet: (user: string, often?: number) => Promise<string> = locked(
  (user) => user.toLowerCase(),
  async (user: string, often = 1) => user.repeat(often),
);
function under<A extends unknown[], R>(name: string | ((...args: A) => string), fn: (...args: A) => R) {
  return locked(name, { passLock: true }, (_lock, ...args: A) => locked("inner", fn)(...args));
}
const rooted: (square: number) => Promise<number> = under((square: number) => `root:${square}`, Math.sqrt);
// @ts-expect-error: its argument is not that of the name.
locked((user: string) => user, Math.sqrt);
const often: LockedOptions = { permits: 2 };
const half: (amount: number) => Promise<number | undefined> = locked("half", often, (amount: number) => amount / 2);
const either: { passLock: boolean } = { passLock: once };
// @ts-expect-error: it is not known whether the function gets the lock.
locked("either", either, (amount: number) => amount);
assert.equal(await half(4), 2);
assert.equal(await double(2), 4);
assert.equal(await rooted(4), 2);
assert.equal(await greet("Ada"), "Ada");
assert.equal(await nightly(), "done");
assert.ok((await pay("ada", 1)) > 0);

const names: readonly string[] = ["a", "b"];
const several: Lock = redlock.lockAll(names, { margin: 100 });
assert.ok(await several.tryAcquire());
const shown: readonly string[] = several.names;
assert.deepEqual(shown, names);
await several.release();
const pool: Lock = await redlock.semaphore("pool", 2, { atLeast: 0 }).acquire();
const slot: number | null = pool.slot;
assert.ok(slot !== null && slot < 2);
const views: LockView[] = await redlock.inspectSemaphore("pool", 2);
assert.deepEqual(
  views.map((view): number | null => view.slot),
  [0, 1],
);
await pool.release();
const candidacy: ElectionOptions = { ttl: 5_000, margin: 1_000, label: "consumer" };
const candidate: Election = redlock.election("scheduler", candidacy);
const term: number | undefined = await candidate.run(async (signal, lock: Lock) => {
  signal.throwIfAborted();
  const leader: Leader | null = await candidate.leader();
  assert.ok(leader !== null && leader.label === "consumer");
  return leader.term ?? lock.fence;
});
assert.ok(term !== undefined);
candidate.stop();
const stopped: boolean = candidate.stopped;
assert.ok(stopped);
assert.equal(await election("scheduler").run(() => 5), 5);
assert.ok(lockAll(["a"]).names.length === 1 && semaphore("pool", 1).slot === null);
assert.equal((await inspectSemaphore("pool", 1)).length, 1);
const both: () => Promise<string> = locked(["a", "b"], { margin: 0 }, () => "both");
const some: (id: number) => Promise<number | null> = locked(
  "pool",
  { permits: 2, passLock: true },
  (lock, _id: number) => lock.slot,
);
assert.ok((await both()) === "both" && (await some(1)) !== null);

const older: Lock = redlock.lock("bar", { autoRenew: false, protocol: "setnx" });
assert.ok(await older.tryAcquire());
await older.release();

countByName(2);
const metrics: Record<string, Metric> = stats();
const points: readonly Point[] = metrics.redlock_acquire_duration_seconds?.points ?? [];
const histogram: Histogram | undefined = points[0]?.histogram;
assert.equal(histogram?.buckets.at(-1)?.le, Number.POSITIVE_INFINITY);
const about = ({ code, topic, level, at, message, fields }: RedlockEvent): string =>
  `${new Date(at).toISOString()} ${level satisfies "debug" | "info" | "warn" | "error"} ${topic} ${code}: ${message} ${fields.node}`;
assert.equal(typeof about, "function");
// As what `toThrow` of a test takes, and in types that others import.
export const errors = { RedlockError } satisfies Record<string, new (...given: never[]) => Error>;
const providers: InstrumentOptions = { meterProvider: undefined };
instrument(providers);
await redlock.lock("foo").using(() => undefined);
uninstrument();

function wrong(): void {
  // @ts-expect-error: what makes meters is a provider
  instrument({ meterProvider: {} });
  // @ts-expect-error: a count is a number
  countByName("20");
  // @ts-expect-error: there are two protocols
  redlock.lock("foo", { protocol: "redlock" });
  // @ts-expect-error: milliseconds are a number
  redlock.lock("foo", { ttl: "5s" });
  // @ts-expect-error: there is no such option
  redlock.lock("foo", { retryCount: 3 });
  // @ts-expect-error: only a client has it
  redlock.lock("foo", { credentials });
  // @ts-expect-error: a login has a password
  configure("memory://consumer", { credentials: async () => ({ username: "app" }) });
  // @ts-expect-error: several names are another method
  redlock.lock(["foo"]);
  // @ts-expect-error: and those are an array
  redlock.lockAll("foo");
  // @ts-expect-error: a number of permits is needed
  redlock.semaphore("pool", { ttl: 5_000 });
  // @ts-expect-error: a candidate waits for ever
  redlock.election("foo", { timeout: 0 });
  // @ts-expect-error: a stopped election has no result
  (): Promise<number> => redlock.election("foo").run(() => 5);
  // @ts-expect-error: options come second
  new Redlock({ ttl: 5_000 });
  // @ts-expect-error: a call that may be skipped has no value then
  (): Promise<string> => redlock.locked("foo", { skipIfHeld: once }, () => "done")();
  // @ts-expect-error: elections are made by a client
  new Election();
  // @ts-expect-error: locks are made by a client
  new (redlock.lock("foo").constructor as typeof Lock)();
  // @ts-expect-error: the function comes first
  lock("foo").using(500, async () => undefined);
  // @ts-expect-error: a fence cannot be set
  lock("foo").fence = 1;
  // @ts-expect-error: a name is needed
  inspect();
  // @ts-expect-error: the function does not take a number
  redlock.locked("foo", undefined, (name: string) => name)(5);
  // @ts-expect-error: a skipped call has no value
  (): Promise<number> => redlock.locked("foo", { skipIfHeld: true }, () => 5)();
  // @ts-expect-error: a client has no acquire
  redlock.acquire(["foo"], 500);
}
assert.equal(typeof wrong, "function");
console.log("as expected");

{
  const server: MemoryServer = new MemoryServer();
  server.hold("foo", 1_000);
  const held = await new Redlock(server.url).lock("bar").acquire();
  // @ts-expect-error: no such reason
  assert.throws(() => lose(held, "broken"));
  lose(held, "taken");
}
