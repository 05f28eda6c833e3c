import assert from "node:assert/strict";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import { configure, countByName, inspect, LockClosed, LockInvalidArgument, lock, Redlock } from "redlock-rs";
import { lose, MemoryServer } from "redlock-rs/testing";
import { failure, fresh, serve } from "./servers.mjs";

const server = await serve();
const redlock = new Redlock(server.url);

/** The error with which `action` is refused. */
async function refused(action, ...mentions) {
  const error = await failure(action);
  assert.ok(error instanceof LockInvalidArgument, `${error?.stack}`);
  assert.equal(error.code, "invalid_argument");
  assert.equal(error.retryable, false);
  assert.ok(error.cause instanceof TypeError);
  for (const text of mentions) assert.ok(error.message.includes(text), `${error.message} lacks ${text}`);
  return error;
}

test("names are text or bytes, and reach the server unchanged", async () => {
  const bytes = new Uint8Array([0, 255, 13, 10, 128]);
  for (const [name, key, shown] of [
    ["schlüssel🔒", Buffer.from("schlüssel🔒"), "schlüssel🔒"],
    [bytes, bytes, "\0\u{fffd}\r\n\u{fffd}"],
    [Buffer.from("in a buffer"), Buffer.from("in a buffer"), "in a buffer"],
    [new Uint8Array(Buffer.from("[part of more]")).subarray(1, 8), Buffer.from("part of"), "part of"],
    [runInNewContext("new Uint8Array([120, 121])"), Buffer.from("xy"), "xy"],
    ["\u{feff}mark", Buffer.from("\u{feff}mark"), "\u{feff}mark"],
  ]) {
    const held = await redlock.lock(name).acquire();
    assert.equal(await server.ask("EXISTS", key), 1);
    assert.equal(held.name, shown);
    assert.equal((await redlock.inspect(name)).state, "held");
    await held.release();
  }
});

test("the bytes of a name and of its prefix count together", async () => {
  const keyPrefix = "schlüssel:";
  const prefixed = new Redlock(server.url, { keyPrefix });
  const left = 512 - Buffer.byteLength(keyPrefix);
  prefixed.lock("right");
  for (const unit of ["x", "ü", "\uffff"]) {
    const units = unit.repeat(Math.floor(left / Buffer.byteLength(unit)));
    const most = units + "x".repeat(left - Buffer.byteLength(units));
    await (await prefixed.lock(most).acquire()).release();
    await refused(() => prefixed.lock(`${most}x`), "513 bytes");
  }
  prefixed.close();
  assert.throws(() => prefixed.lock("right", { ttl: 500 }), LockClosed);
});

test("a lock keeps its name and its options, however many others there are", async () => {
  const bytes = Buffer.from("bytes");
  const options = { ttl: 60_000 };
  const lock = redlock.lock(bytes, options);
  bytes.fill(0);
  options.ttl = 1_000;
  const shorter = await redlock.lock("shorter", options).acquire();
  assert.ok(shorter.remaining < 1_000, "options are compared by value");
  for (let ttl = 2_000; ttl < 2_100; ttl += 1) redlock.lock("other", { ttl });
  await lock.acquire();
  assert.equal(lock.name, "bytes");
  assert.equal(await server.ask("EXISTS", "bytes"), 1);
  assert.ok(lock.remaining > 50_000 && lock.remaining < 60_000);
  const plain = await redlock.lock("plain").acquire();
  assert.ok(plain.remaining < 10_000);
  for (const wrong of [{ ttl: 1 }, { ttl: Number.NaN }, { ttl: -1 }]) {
    for (let turn = 0; turn < 2; turn += 1) await refused(() => redlock.lock("other", wrong), "ttl is");
  }
});

test("wrong options are refused at once, and never shown", async () => {
  for (const [options, ...mentions] of [
    [{ ttl: "10000" }, "ttl must be a number of milliseconds", "not a string"],
    [{ ttl: 10_000n }, "not a bigint"],
    [{ ttl: 10 }, "ttl is 10 ms", "autoRenew"],
    [{ timeout: "secret" }, "null to wait forever", "not a string"],
    [{ autoRenew: 1 }, "autoRenew must be true or false"],
    [{ maxHold: 1_000 }, "maxHold is 1 s"],
    [{ atLeast: 604_800_001 }, "atLeast is 604800001 ms", "at most 168 h"],
    [{ margin: 5_001 }, "margin is 5001 ms", "half the ttl"],
    [{ nodeTimeout: 0 }, "nodeTimeout is 0ns"],
    [{ restartDelay: 1e12 }, "restartDelay is "],
    [{ fenceTtl: 1 }, "fenceTtl is 1 ms"],
    [{ label: "\udc00" }, "lone surrogates"],
    [{ label: 17 }, "label must be a string"],
    [{ protocol: true }, "protocol"],
  ]) {
    for (const make of [() => redlock.lock("foo", options), () => new Redlock("memory://a", options)]) {
      const error = await refused(make, ...mentions);
      assert.equal(error.option, Object.keys(options)[0]);
      assert.doesNotMatch(error.message, /secret|auto_renew|max_hold|at_least|node_timeout|restart_delay|fence_ttl/);
    }
  }
  await refused(() => redlock.lock("foo", 1_000), "not a number", "{ ttl: 10_000 }");
  await refused(() => redlock.lock("foo", null), "not null");
  await refused(() => redlock.lock("foo").acquire(500), "not a number", "{ timeout: 500");
  await refused(() => redlock.lock("foo").acquire({ timeout: -2 }), "timeout is -2 ms");
  await refused(() => redlock.lock("foo").acquire({ timeout: "1" }), "not a string");
  const held = await redlock.lock(fresh()).acquire();
  await refused(() => held.extend("1000"), "ttl must be a number of milliseconds");
  await refused(() => held.extend(1), "ttl is 1 ms");
  await held.release();
});

test("the name of a lock stays as it is in a message", async () => {
  const name = 'max_hold "auto_renew" fence_ttl';
  const error = await refused(() => redlock.lock(name, { maxHold: 1_000 }), "maxHold is 1 s");
  assert.equal(error.lockName, name);
  assert.ok(error.message.startsWith(String.raw`lock "max_hold \"auto_renew\" fence_ttl": maxHold`), error.message);
});

test("unknown options are refused, those of other libraries with a hint", async () => {
  for (const [option, ...mentions] of [
    ["tll", 'unknown option "tll"'],
    ["max_hold", 'unknown option "max_hold"', "use maxHold"],
    ["automaticExtensionThreshold", "use autoRenew"],
    ["constructor", 'unknown option "constructor"'],
  ]) {
    const error = await refused(() => redlock.lock("foo", { [option]: 1 }), ...mentions);
    assert.equal(error.option, option);
    await refused(() => new Redlock("memory://a", { [option]: 1 }), ...mentions);
  }
  await refused(() => redlock.lock("foo").acquire({ retryCount: 1 }), "use timeout");
  await refused(() => redlock.lock("foo").tryAcquire({ timeout: 1 }), "timeout");
  const elsewhere = await refused(() => redlock.lock("foo").using(() => 1, { maxHold: 1 }));
  assert.equal(elsewhere.message, 'unknown option "maxHold"; it is an option of a lock');
});

test("an option given as undefined is not given", async () => {
  const lock = redlock.lock(fresh(), { ttl: undefined, timeout: undefined, label: undefined });
  await lock.acquire({ timeout: undefined, signal: undefined });
  await lock.extend(undefined);
  assert.ok(lock.remaining > 9_000);
  await lock.release();
});

test("an option given as null is the built-in default", async () => {
  const client = new Redlock("memory://null", { ttl: 5_000, timeout: 0, keyPrefix: null, connectTimeout: null });
  const every = ["ttl", "timeout", "autoRenew", "maxHold", "atLeast", "margin", "nodeTimeout"];
  const more = ["restartDelay", "fenceTtl", "label", "protocol"];
  const lock = client.lock("foo", Object.fromEntries([...every, ...more].map((option) => [option, null])));
  await lock.acquire({ timeout: null });
  assert.ok(lock.remaining > 9_000, "not the ttl of the client");
  await lock.release();
});

test("options that would be ignored are refused", async () => {
  class Settings {
    get ttl() {
      return 5_000;
    }
  }
  const inherited = Object.create({ timeout: 0 });
  const hidden = Object.defineProperty({}, "ttl", { value: 5_000 });
  for (const [options, option] of [
    [new Settings(), "ttl"],
    [inherited, "timeout"],
    [hidden, "ttl"],
  ]) {
    for (const make of [() => redlock.lock("foo", options), () => new Redlock("memory://a", options)]) {
      assert.equal((await refused(make, "is not read", "plain object")).option, option);
    }
  }
  const lock = redlock.lock("foo");
  for (const call of [() => lock.acquire(new AbortController()), () => lock.tryAcquire(new AbortController())]) {
    assert.equal((await refused(call, "signal: controller.signal")).option, "signal");
  }
  const own = Object.assign(Object.create({ unrelated: 1 }), { timeout: 0 });
  await (await lock.acquire(own)).release();
  const client = new Redlock("memory://a");
  await refused(() => client.close(2_000), "{ limit: 500 }", "not a number");
  assert.equal((await refused(() => client.close({ timeout: 2_000 }), "unknown option")).option, "timeout");
  await client.close({ limit: undefined });
});

test("the calls of other libraries say what to write", async () => {
  await refused(() => redlock.acquire(["foo"], 5_000), 'redlock.lock("name", { ttl: 10_000 }).acquire()');
  await refused(() => redlock.using(["foo"], 5_000, async () => undefined), ".using(async (signal)");
});

test("the default client is made at the first use, from the environment", async () => {
  process.env.REDLOCK_URLS = "nonsense://";
  await refused(() => lock("foo"));
  process.env.REDLOCK_URLS = server.url;
  const held = await lock("by-default").acquire();
  assert.equal(await server.ask("EXISTS", "by-default"), 1);
  assert.equal((await inspect("by-default")).fence, held.fence);
  await held.release();
});

test("the default client can be set", async () => {
  const before = lock("configured");
  configure("memory://configured", { ttl: 5_000 });
  const held = await lock("configured").acquire();
  assert.ok(held.remaining <= 5_000);
  assert.equal((await inspect("configured")).nodes[0].node, "memory://configured");
  assert.ok(await before.tryAcquire(), "it keeps the nodes it was made with");
  await before.release();
  await refused(() => configure("nonsense://"), "scheme");
  assert.equal((await inspect("configured")).state, "held", "a wrong one changes nothing");
  await held.release();
});

test("the number of names that are counted apart is checked", async () => {
  for (const most of [-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, "5", null, undefined, {}]) {
    assert.equal((await failure(() => countByName(most))).option, "most", String(most));
  }
});

test("the wrong arguments of redlock-rs/testing are refused", async () => {
  const server = new MemoryServer();
  const held = await new Redlock(server.url).lock("held").acquire();
  const wrong = [
    [() => server.hold(1), /string or a Uint8Array/],
    [() => server.hold(""), /empty/],
    [() => server.hold("a", "1"), /ttl must be a number of milliseconds/],
    [() => server.hold("a", -1), /ttl is -1 ms/],
    [() => server.release("redlock:fence:a"), /reserved/],
    [() => server.advance("1"), /by must be a number/],
    [() => server.advance(Number.NaN), /by/],
    [
      () => {
        server.available = 1;
      },
      /available must be true or false/,
    ],
    [() => lose(held, "broken"), /reason must be one of expired, taken/],
    [() => lose({}), /a lock of redlock-rs/],
  ];
  for (const [call, message] of wrong) {
    assert.throws(call, (error) => error instanceof LockInvalidArgument && message.test(error.message), String(call));
  }
  assert.equal(held.held, true);
  await held.release();
});
