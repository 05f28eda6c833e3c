import assert from "node:assert/strict";
import {
  type AcquireOptions,
  type Credentials,
  configure,
  type ErrorCode,
  inspect,
  type Lock,
  LockLost,
  type LockOptions,
  LockTimeout,
  type Login,
  lock,
  locked,
  type NodeView,
  Redlock,
  RedlockError,
} from "redlock-rs";
import { lose, MemoryServer } from "redlock-rs/testing";

const options: LockOptions = { ttl: 5_000, timeout: null, autoRenew: true, label: "consumer" };
using redlock = new Redlock(["memory://consumer"], options);

{
  await using held = await redlock.lock("foo").acquire();
  const fence: number = held.fence;
  assert.ok(fence > 0 && held.held);
  const views: NodeView[] = await redlock.inspect("foo");
  for (const view of views) {
    // @ts-expect-error: only a held lock has a fence
    assert.ok(view.fence);
    if (view.state !== "held") assert.fail(view.state);
    assert.equal(view.fence, fence);
    const left: number | null = view.ttlLeft;
    assert.ok(left !== null && view.label === "consumer");
  }
}
assert.equal((await redlock.inspect("foo"))[0]?.state, "free");

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
const double: (amount: number) => Promise<number> = locked("double", undefined, (amount: number) => 2 * amount);
const nightly: () => Promise<string | undefined> = redlock.locked("cron", { skipIfHeld: true }, async () => "done");
const pay: (user: string) => Promise<number> = locked(
  (user: string) => `user:${user}`,
  { passLock: true, ttl: null },
  async (lock: Lock, user: string) => lock.fence + user.length,
);
assert.equal(await double(2), 4);
assert.equal(await nightly(), "done");
assert.ok((await pay("ada")) > 0);

const older: Lock = redlock.lock("bar", { autoRenew: false, protocol: "setnx" });
assert.ok(await older.tryAcquire());
await older.release();

function wrong(): void {
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
  // @ts-expect-error: one lock has one name
  redlock.lock(["foo"]);
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
