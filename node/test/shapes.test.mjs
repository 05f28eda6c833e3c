// Locks of several names and semaphores, as JavaScript has them: arguments, and what is kept between calls.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import {
  configure,
  election,
  inspectSemaphore,
  LockClosed,
  LockInvalidArgument,
  LockTimeout,
  lock,
  lockAll,
  Redlock,
  semaphore,
} from "redlock-rs";
import { MemoryServer } from "redlock-rs/testing";
import { failure, fresh, serve } from "./servers.mjs";

const native = createRequire(import.meta.url)("../lib/native.js");

const server = await serve();
const redlock = new Redlock(server.url, { ttl: 10_000 });

/** How many of these keys the server has. */
const present = (names) => server.ask("EXISTS", ...names);

/** The error with which `action` is refused. */
async function refused(action, option, ...mentions) {
  const error = await failure(action);
  assert.ok(error instanceof LockInvalidArgument, `${error?.stack}`);
  assert.equal(error.option, option);
  assert.ok(error.cause instanceof TypeError);
  for (const text of mentions) assert.ok(error.message.includes(text), `${error.message} lacks ${text}`);
}

test("the names are in the order of their bytes, each once, and those that were given", async () => {
  const bytes = Buffer.from("b");
  const names = ["\u{1f512}", "\u{ffff}", bytes, "a", "b", "\u{1f512}"];
  const several = redlock.lockAll(names);
  bytes.fill(0);
  names.length = 1;
  assert.deepEqual(several.names, ["a", "b", "\u{ffff}", "\u{1f512}"]);
  await several.acquire();
  assert.equal(await present(["a", "b", "\u{ffff}", "\u{1f512}"]), 4);
  assert.deepEqual(several.names, ["a", "b", "\u{ffff}", "\u{1f512}"]);
  await several.release();
  assert.deepEqual(redlock.lockAll([new Uint8Array([255]), "c"]).names, ["c", "\u{fffd}"]);
  assert.deepEqual(redlock.lock(new Uint8Array([255])).names, ["\u{fffd}"]);
});

test("wrong names are refused at once", async () => {
  const hole = ["a", "b", "c"];
  delete hole[1];
  for (const [wrong, ...mentions] of [
    ["ab", "names must be an array of names, not a string"],
    [undefined, "not undefined"],
    [new Set(["a", "b"]), "not an object"],
    [["a", 17], "names[1] must be a string or a Uint8Array, not a number"],
    [hole, "names[1]", "not undefined"],
    [["a", ["b"]], "names[1]", "not an array"],
    [["a", "\ud800"], "names[1]", "lone surrogates"],
    [["a", new Uint8Array(513)], "names[1] has 513 bytes"],
  ]) {
    await refused(() => redlock.lockAll(wrong), "names", ...mentions);
  }
  await refused(() => redlock.lock(["a", "b"]), "name", "not an array", "lockAll(names)");
});

test("wrong names are refused after right ones, with a prefix, and once the client is closed", async () => {
  const client = new Redlock(server.url, { keyPrefix: "redlock:" });
  const several = await client.lockAll(["a", "b"]).acquire();
  assert.deepEqual(several.names, ["a", "b"]);
  assert.equal(await present(["redlock:a", "redlock:b"]), 2);
  assert.equal(
    (await failure(() => client.lockAll(["a", "b"]).acquire({ timeout: 0 }))).lockName,
    "redlock:a, redlock:b",
  );
  await refused(() => client.lockAll(["a", "fence:b"]), "names", "reserved");
  await several.release();
  client.close();
  assert.throws(() => client.lockAll(["a", "b"]), LockClosed);
});

test("only the first lock with its options is checked natively", (t) => {
  const { prototype } = native.Client;
  const calls = [];
  for (const name of ["template", "templateOfAll", "templateOfSemaphore"]) {
    const own = prototype[name];
    prototype[name] = function counted(...given) {
      calls.push(name);
      return own.apply(this, given);
    };
    t.after(() => {
      prototype[name] = own;
    });
  }
  const client = new Redlock(server.url);
  for (let turn = 0; turn < 3; turn += 1) {
    client.lock(`a${turn}`, { ttl: 5_000 });
    client.lockAll([`a${turn}`, "b"], { ttl: 5_000 });
    client.semaphore(`a${turn}`, 3, { ttl: 5_000 });
  }
  assert.deepEqual(calls, ["template", "templateOfAll", "templateOfSemaphore"]);
});

test("wrong names and options are refused, and a closed client", async () => {
  const client = new Redlock(server.url);
  client.semaphore("right", 2);
  for (const [name, ...mentions] of [
    [["a"], "not an array"],
    ["\ud800", "lone surrogates"],
  ]) {
    await refused(() => client.semaphore(name, 2), "name", ...mentions);
    await refused(() => client.inspectSemaphore(name, 2), "name", ...mentions);
  }
  await refused(() => client.semaphore("pool", 2, { permits: 2 }), "permits", "unknown option");
  client.close();
  assert.throws(() => client.semaphore("right", 2), LockClosed);
  await assert.rejects(client.inspectSemaphore("right", 2), LockClosed);
});

test("semaphores with other numbers of permits keep their own, however many there are", async () => {
  const name = fresh();
  const pools = Array.from({ length: 32 }, (_, index) => redlock.semaphore(name, index + 1, { timeout: 0 }));
  const last = redlock.semaphore(name, 1, { timeout: 0 });
  const [first] = pools;
  await first.acquire();
  await assert.rejects(last.acquire(), LockTimeout);
  // A caller with more permits has more slots.
  assert.equal(await pools[1].tryAcquire(), true);
  assert.deepEqual([first.slot, pools[1].slot], [0, 1]);
  await Promise.all([first, pools[1]].map((lock) => lock.release()));
});

test("the default client has them", async (t) => {
  t.after(() => configure());
  configure(new MemoryServer().url);
  const several = await lockAll(["a", "b"]).acquire();
  assert.equal(await lock("a").tryAcquire(), false);
  const permit = await semaphore("pool", 1).acquire();
  assert.deepEqual(
    (await inspectSemaphore("pool", 2)).map(({ state }) => state),
    ["held", "free"],
  );
  assert.equal(await election("scheduler").run((_, { held }) => held), true);
  await several.release();
  await permit.release();
});
