import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import { Worker } from "node:worker_threads";
import { configure, countByName, inspect, LockInvalidArgument, lock, locked, Redlock } from "redlock-rs";
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
  for (const [name, key, shown] of [
    [new Uint8Array([0, 255, 13, 10, 128]), Buffer.from([0, 255, 13, 10, 128]), "\0\u{fffd}\r\n\u{fffd}"],
    [new Uint8Array(Buffer.from("[part of more]")).subarray(1, 8), Buffer.from("part of"), "part of"],
    [runInNewContext("new Uint8Array([120, 121])"), Buffer.from("xy"), "xy"],
    ["\u{feff}mark🔒", Buffer.from("\u{feff}mark🔒"), "\u{feff}mark🔒"],
  ]) {
    const held = await redlock.lock(name).acquire();
    assert.equal(await server.ask("EXISTS", key), 1);
    assert.equal(held.name, shown);
    assert.equal((await redlock.inspect(name)).state, "held");
    await held.release();
  }
});

test("several names are sorted, each once, and kept", async () => {
  const bytes = Buffer.from("b");
  const names = ["\u{1f512}", "\u{ffff}", bytes, "a", "b", "\u{1f512}"];
  const several = redlock.lockAll(names);
  bytes.fill(0);
  names.length = 1;
  const sorted = ["a", "b", "\u{ffff}", "\u{1f512}"];
  assert.deepEqual(several.names, sorted);
  await several.acquire();
  assert.equal(await server.ask("EXISTS", ...sorted), 4);
  await several.release();
  assert.deepEqual(redlock.lockAll([new Uint8Array([255]), "c"]).names, ["c", "\u{fffd}"]);
});

test("wrong names are refused at once", async () => {
  const hole = ["a", "b", "c"];
  delete hole[1];
  for (const [wrong, ...mentions] of [
    ["ab", "names must be an array of names, not a string"],
    [new Set(["a", "b"]), "not a Set"],
    [["a", 17], "names[1] must be a string or a Uint8Array, not a number"],
    [hole, "names[1]", "not undefined"],
    [["a", "\ud800"], "names[1]", "lone surrogates"],
    [["a", new Uint8Array(513)], "names[1] has 513 bytes"],
  ]) {
    assert.equal((await refused(() => redlock.lockAll(wrong), ...mentions)).option, "names");
  }
  const single = await refused(() => redlock.lock(["a", "b"]), "not an array", "lockAll(names)");
  assert.equal(single.option, "name");
});

test("a lock keeps its name and its options, whatever becomes of what was given", async () => {
  const bytes = Buffer.from("bytes");
  const options = { ttl: 60_000 };
  const lock = redlock.lock(bytes, options);
  bytes.fill(0);
  options.ttl = 1_000;
  const shorter = await redlock.lock("shorter", options).acquire();
  assert.ok(shorter.remaining < 1_000, "options are compared by value");
  await lock.acquire();
  assert.equal(lock.name, "bytes");
  assert.equal(await server.ask("EXISTS", "bytes"), 1);
  assert.ok(lock.remaining > 50_000 && lock.remaining < 60_000);
});

test("wrong options are refused at once, and never shown", async () => {
  for (const [options, ...mentions] of [
    [{ ttl: "10000" }, "ttl must be a number of milliseconds", "not a string"],
    [{ ttl: 10_000n }, "not a bigint"],
    [{ ttl: 10 }, "ttl is 10 ms", "autoRenew"],
    [{ timeout: "secret" }, "null to wait forever", "not a string"],
    [{ autoRenew: 1 }, "autoRenew must be true or false"],
    [{ maxHold: 1_000 }, "maxHold is 1 s"],
    [{ label: "\udc00" }, "lone surrogates"],
    [{ protocol: true }, "protocol"],
  ]) {
    for (const make of [() => redlock.lock("foo", options), () => new Redlock("memory://a", options)]) {
      const error = await refused(make, ...mentions);
      assert.equal(error.option, Object.keys(options)[0]);
      assert.doesNotMatch(error.message, /secret|auto_renew|max_hold/);
    }
  }
  await refused(() => redlock.lock("foo", 1_000), "not a number", "{ ttl: 10_000 }");
  await refused(() => redlock.lock("foo", null), "not null");
  await refused(() => redlock.lock("foo").acquire(500), "not a number", "{ timeout: 500");
  await refused(() => redlock.lock("foo").acquire({ timeout: -2 }), "timeout is -2 ms");
  const held = await redlock.lock(fresh()).acquire();
  await refused(() => held.extend("1000"), "ttl must be a number of milliseconds");
  await refused(() => held.extend(1), "ttl is 1 ms");
  await held.release();
  for (const most of [-1, 1.5, "5", null]) assert.equal((await failure(() => countByName(most))).option, "most");
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
    for (const make of [() => redlock.lock("foo", { [option]: 1 }), () => new Redlock("memory://a", { [option]: 1 })]) {
      assert.equal((await refused(make, ...mentions)).option, option);
    }
  }
  await refused(() => redlock.lock("foo").acquire({ retryCount: 1 }), "use timeout");
  await refused(() => redlock.lock("foo").tryAcquire({ timeout: 1 }), "timeout");
  await refused(() => redlock.lock("foo").using(() => 1, { maxHold: 1 }), "it is an option of a lock");
});

test("an option given as undefined is not given, and null is the built-in default", async () => {
  const client = new Redlock("memory://null", { ttl: 5_000, timeout: 0, keyPrefix: null, connectTimeout: null });
  const own = await client.lock("own", { ttl: undefined, label: undefined }).acquire({ signal: undefined });
  assert.ok(own.remaining <= 5_000, "the ttl of the client");
  const every = ["ttl", "timeout", "autoRenew", "maxHold", "atLeast", "margin", "nodeTimeout"];
  const more = ["restartDelay", "fenceTtl", "label", "protocol"];
  const lock = client.lock("foo", Object.fromEntries([...every, ...more].map((option) => [option, null])));
  await lock.acquire({ timeout: null });
  assert.ok(lock.remaining > 9_000, "not the ttl of the client");
  for (const held of [own, lock]) await held.release();
});

test("options that would be ignored are refused", async () => {
  const inherited = Object.create({ timeout: 0 });
  const hidden = Object.defineProperty({}, "ttl", { value: 5_000 });
  for (const [options, option] of [
    [inherited, "timeout"],
    [hidden, "ttl"],
  ]) {
    for (const make of [() => redlock.lock("foo", options), () => new Redlock("memory://a", options)]) {
      assert.equal((await refused(make, "is not read", "plain object")).option, option);
    }
  }
  const { signal } = new AbortController();
  for (const [options, mention] of [
    [Promise.resolve({ ttl: 5_000 }), "not a Promise"],
    [[], "not an Array"],
    [new Map([["ttl", 5_000]]), "not a Map"],
    [signal, "not an AbortSignal"],
  ]) {
    for (const make of [() => redlock.lock("foo", options), () => new Redlock("memory://a", options)]) {
      await refused(make, "{ ttl: 10_000 }", mention);
    }
  }
  const lock = redlock.lock("foo");
  for (const call of [() => lock.acquire(new AbortController()), () => lock.tryAcquire(new AbortController())]) {
    await refused(call, "signal: controller.signal", "not an AbortController");
  }
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
  const early = locked("early", () => server.ask("EXISTS", "early"));
  process.env.REDLOCK_URLS = "nonsense://";
  await refused(() => lock("foo"));
  process.env.REDLOCK_URLS = server.url;
  assert.equal(await early(), 1, "a function that was wrapped at an import");
  const held = await lock("by-default").acquire();
  assert.equal(await server.ask("EXISTS", "by-default"), 1);
  assert.equal((await inspect("by-default")).fence, held.fence);
  await held.release();
  const code = `
    const { inspect } = require("redlock-rs");
    process.env.REDLOCK_URLS = "memory://of-the-thread";
    inspect("foo").then(({ nodes }) => require("node:worker_threads").parentPort.postMessage(nodes[0].node));
  `;
  const [node] = await once(new Worker(code, { eval: true }), "message");
  assert.equal(node, "memory://of-the-thread");
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

test("the wrong arguments of redlock-rs/testing are refused", async () => {
  const server = new MemoryServer();
  const held = await new Redlock(server.url).lock("held").acquire();
  for (const [call, message] of [
    [() => server.hold(1), /string or a Uint8Array/],
    [() => server.hold("a", -1), /ttl is -1 ms/],
    [() => server.release("redlock:fence:a"), /reserved/],
    [() => server.advance("1"), /by must be a number/],
    [() => Object.assign(server, { available: 1 }), /available must be true or false/],
    [() => lose(held, "broken"), /reason must be one of expired, taken/],
    [() => lose({}), /a lock of redlock-rs/],
  ]) {
    assert.throws(call, (error) => error instanceof LockInvalidArgument && message.test(error.message), String(call));
  }
  assert.equal(held.held, true);
  await held.release();
});
