import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect as shown } from "node:util";
import { LockAlreadyHeld, LockClosed, LockInvalidArgument, LockLost, LockTimeout, locked, Redlock } from "redlock-rs";
import { lose } from "redlock-rs/testing";
import { failure, fresh, Server, serve, until } from "./servers.mjs";

const server = await serve();
const redlock = new Redlock(server.url, { ttl: 10_000 });

test("the stack of an error leads to the caller", async () => {
  const name = fresh();
  const held = await redlock.lock(name).acquire();
  async function theCaller() {
    await redlock.lock(name).acquire({ timeout: 0 });
  }
  const error = await failure(theCaller);
  assert.match(error.stack, /^LockTimeout: lock /);
  assert.match(error.stack, /async theCaller .*lock\.test\.mjs/);
  await held.release();
});

test("using acquires, runs and releases", async () => {
  const name = fresh();
  const lock = redlock.lock(name);
  const result = await lock.using(async (signal, given) => {
    assert.equal(given, lock);
    assert.ok(signal instanceof AbortSignal && !signal.aborted);
    assert.equal(signal, lock.signal);
    assert.equal(await server.ask("EXISTS", name), 1);
    return 17;
  });
  assert.equal(result, 17);
  assert.equal(await server.ask("EXISTS", name), 0);
  assert.equal(await lock.using(() => "not a promise"), "not a promise");
  const broken = lock.using(() => {
    throw new RangeError("its own");
  });
  await assert.rejects(broken, RangeError);
  assert.equal(await server.ask("EXISTS", name), 0);
  await assert.rejects(
    lock.using(500, async () => 1),
    LockInvalidArgument,
  );
});

test("using does not run the body without the lock", async () => {
  const name = fresh();
  const held = await redlock.lock(name).acquire();
  let ran = false;
  const body = () => {
    ran = true;
  };
  await assert.rejects(redlock.lock(name).using(body, { timeout: 200 }), LockTimeout);
  const signal = AbortSignal.abort(new Error("mine"));
  await assert.rejects(redlock.lock(name).using(body, { signal }), { message: "mine" });
  assert.equal(ran, false);
  await held.release();
});

test("using goes on with the hold of a lock that was attached", async () => {
  const name = fresh();
  const text = await (await redlock.lock(name).acquire()).detach(20_000);
  const attached = await redlock.attach(text);
  const { fence } = attached;
  await assert.rejects(attached.acquire(), LockAlreadyHeld);
  assert.equal(await attached.using((_, given) => given.fence), fence);
  assert.ok(!attached.held);
  await attached.acquire();
  await assert.rejects(
    attached.using(() => undefined),
    LockAlreadyHeld,
  );
  const again = await redlock.attach(await attached.detach());
  lose(again, "taken");
  await assert.rejects(again.using(assert.fail), { code: "lost", reason: "taken" });
  await again.using((_, { held }) => assert.ok(held));
});

test("a generator is refused, because its body would run after the release", async () => {
  function* some() {
    yield 1;
  }
  async function* later() {
    yield 1;
  }
  for (const call of [() => locked("foo", some), () => redlock.lock(fresh()).using(later)]) {
    const error = await failure(call);
    assert.equal(error.code, "invalid_argument");
    assert.match(error.message, /is a generator, .* lock\(name\)\.using inside of it/);
  }
});

test("a lock is disposed of", async () => {
  const name = fresh();
  const lock = redlock.lock(name);
  await lock[Symbol.asyncDispose]();
  await lock.acquire();
  await lock[Symbol.asyncDispose]();
  assert.equal(await server.ask("EXISTS", name), 0);
  await lock[Symbol.asyncDispose]();
  await lock.acquire();
  await server.ask("SET", name, "someone else");
  await lock.extend().catch(() => undefined);
  await assert.rejects(lock[Symbol.asyncDispose](), LockLost);
  await lock[Symbol.asyncDispose]();
});

test("a lock that leaves a block while it acquires is kept", async () => {
  const lock = redlock.lock(fresh());
  const other = await redlock.lock(lock.name).acquire();
  const acquired = lock.acquire();
  await lock[Symbol.asyncDispose]();
  await assert.rejects(lock.release(), { code: "not_held" });
  await assert.rejects(lock.acquire(), { code: "already_held" });
  await other.release();
  await acquired;
  lock.check();
  await lock.release();
});

test("a client that is disposed of is closed", async () => {
  for (const dispose of [Symbol.dispose, Symbol.asyncDispose]) {
    const client = new Redlock(server.url);
    const held = await client.lock(fresh()).acquire();
    const idle = client.lock(fresh());
    await client[dispose]();
    assert.throws(() => client.lock("foo"), LockClosed);
    await assert.rejects(idle.acquire(), LockClosed);
    assert.equal(held.held, false);
    for (const call of [() => held.check(), () => held.extend()]) {
      assert.match((await failure(call)).message, /not held: .*its client was closed/);
    }
    await until(async () => (await server.ask("EXISTS", held.name)) === 0);
  }
  await assert.rejects(redlock.close({ limit: -1 }), LockInvalidArgument);
});

test("no output shows credentials or tokens", async () => {
  const guarded = await Server.start({ requirepass: "hunter2" });
  try {
    const url = `${guarded.url}?pass=hunter2`;
    const client = new Redlock(url);
    const lock = await client.lock("foo").acquire();
    const election = client.election("foo");
    const invalid = await failure(() => new Redlock(`${url}&timeout=5`));
    const timeout = await failure(() => client.lock("foo").acquire({ timeout: 0 }));
    const output = shown(
      { client, election, lock, signal: lock.signal, timeout, invalid },
      { depth: 9, showHidden: true },
    );
    assert.doesNotMatch(output, /hunter2/);
    assert.doesNotMatch(output, /[0-9a-f]{32}/, "a token");
    assert.match(output, /Lock \{ name: 'foo', held: true, remaining: /);
    assert.match(output, /Redlock \{ nodes: \[ 'unix:/);
    assert.match(output, /Election \{ name: 'foo', stopped: false \}/);
    assert.deepEqual(Object.keys(JSON.parse(JSON.stringify({ lock })).lock), ["name", "held", "remaining"]);
    await lock.release();
    await client.close();
    assert.match(JSON.stringify([client, election]), /^\[{"nodes":\["unix:.*"\]},{"name":"foo","stopped":false}\]$/);
  } finally {
    await guarded.stop();
  }
});

test("nothing is copied, and a client makes locks and elections", async () => {
  const held = redlock.lock(fresh());
  for (const object of [held, redlock, redlock.election(fresh())]) {
    assert.match((await failure(() => structuredClone([object]))).message, /cannot be copied; make another/);
  }
  for (const Class of [held.constructor, redlock.election(fresh()).constructor]) {
    for (const given of [[], ["name"], [redlock, "name"]]) {
      const error = await failure(() => new Class(...given));
      assert.ok(error instanceof LockInvalidArgument && error.message.startsWith("a client makes"), error.stack);
    }
  }
});
