// Locks of several names: all of them, or none.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { configure, LockClosed, LockInvalidArgument, LockLost, LockTimeout, lock, lockAll, Redlock } from "redlock-rs";
import { lose, MemoryServer } from "redlock-rs/testing";
import { ends, start } from "./programs.mjs";
import { failure, fresh, Server, until } from "./servers.mjs";

const native = createRequire(import.meta.url)("../lib/native.js");

let server;
let redlock;

before(async () => {
  server = await Server.start();
  redlock = new Redlock(server.url, { ttl: 10_000 });
});
after(() => server.stop());

/** Fresh names, in order. */
const some = (count) => Array.from({ length: count }, () => fresh("several")).sort();

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

test("a lock of several names has all of them, and one fence", async () => {
  const names = some(3);
  const several = redlock.lockAll(names.toReversed());
  assert.deepEqual(several.names, names);
  assert.equal(several.name, names.join(", "));
  assert.equal(several.held, false);
  assert.equal(await several.acquire(), several);
  assert.equal(await present(names), 3);
  assert.ok(several.fence > 0);
  assert.equal(several.slot, null);
  await several.extend(60_000);
  for (const name of names) assert.ok((await server.ask("PTTL", name)) > 50_000);
  await several.release();
  assert.equal(await present(names), 0);
  const one = await redlock.lock(names[0]).acquire();
  const { fence } = one;
  await one.release();
  await several.acquire();
  assert.ok(several.fence > fence, "also than that of one name alone");
  await several.release();
});

test("a lock of several names has none of them while one is held", async () => {
  const names = some(2);
  const held = await redlock.lock(names[1]).acquire();
  const several = redlock.lockAll(names);
  assert.equal(await several.isLocked(), true);
  assert.equal(await several.tryAcquire(), false);
  assert.equal(await present(names), 1);
  const error = await failure(() => several.acquire({ timeout: 200 }));
  assert.ok(error instanceof LockTimeout);
  assert.equal(error.lockName, names.join(", "));
  const waiting = several.acquire();
  await held.release();
  await waiting;
  assert.equal(await redlock.lock(names[0]).tryAcquire(), false);
  await several.release();
  assert.equal(await several.isLocked(), false);
});

test("sets that overlap, in any order, make no deadlock", async () => {
  const names = some(3);
  const sets = [
    [0, 1],
    [1, 0],
    [1, 2],
    [2, 0],
    [2, 1, 0],
  ].map((set) => set.map((index) => names[index]));
  const holders = new Map();
  const work = async (set) => {
    for (let turn = 0; turn < 5; turn += 1) {
      await redlock.lockAll(set).using(async (_, { fence }) => {
        for (const name of set) {
          assert.equal(holders.get(name)?.held ?? false, false, "one holder of each name");
          assert.ok((holders.get(name)?.fence ?? 0) < fence, "the fences of each name increase");
          holders.set(name, { held: true, fence });
        }
        await new Promise(setImmediate);
        for (const name of set) holders.set(name, { held: false, fence });
      });
    }
  };
  await Promise.all(sets.map(work));
});

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

test("one name is the ordinary lock", async () => {
  const name = fresh();
  for (const names of [[name], [name, name], [name, Buffer.from(name)]]) {
    const one = await redlock.lockAll(names, { atLeast: 0 }).acquire();
    assert.deepEqual([one.name, one.names], [name, [name]]);
    assert.equal(await redlock.lock(name).tryAcquire(), false);
    await one.release();
  }
  assert.deepEqual(redlock.lock(name).names, [name]);
});

test("only a lock of one name has a least time", async () => {
  const names = some(2);
  for (let turn = 0; turn < 2; turn += 1) {
    await refused(() => redlock.lockAll(names, { atLeast: 100 }), "atLeast");
    assert.equal(redlock.lockAll([names[0], names[0]], { atLeast: 100 }).name, names[0]);
  }
  const client = new Redlock(server.url, { atLeast: 9_000 });
  const several = await client.lockAll(names).acquire();
  await several.release();
  assert.equal(await present(names), 0, "that of the client does not count");
});

test("wrong names are refused at once", async () => {
  const names = some(17);
  redlock.lockAll(names.slice(1));
  redlock.lockAll([...names.slice(1), names[1]]);
  const hole = ["a", "b", "c"];
  delete hole[1];
  for (const [wrong, ...mentions] of [
    ["ab", "names must be an array of names, not a string"],
    [undefined, "not undefined"],
    [new Set(["a", "b"]), "not an object"],
    [[], "names"],
    [names, "16"],
    [["a", 17], "names[1] must be a string or a Uint8Array, not a number"],
    [hole, "names[1]", "not undefined"],
    [["a", ["b"]], "names[1]", "not an array"],
    [["a", "\ud800"], "names[1]", "lone surrogates"],
    [[""], "names[0] is empty"],
    [["b", "a", ""], "names[2] is empty"],
    [["a", "redlock:slot:0:{a}"], "names[1]", "reserved"],
    [["redlock:slot:0:{a}"], "names[0]", "reserved"],
    [["a", new Uint8Array(513)], "names[1] has 513 bytes"],
  ]) {
    await refused(() => redlock.lockAll(wrong), "names", ...mentions);
  }
  await refused(() => redlock.lockAll(["a", "b"], { ttl: 1 }), "ttl", "ttl is 1 ms");
  await refused(() => redlock.lockAll(["a", "b"], { protocol: "setnx" }), "protocol");
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
  client.close();
  assert.throws(() => client.lockAll(["a", "b"]), LockClosed);
  await several.release();
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

test("one name that is lost is the loss of all", async () => {
  const names = some(3);
  const several = await redlock.lockAll(names, { ttl: 1_000 }).acquire();
  const { signal, fence } = several;
  await server.ask("SET", names[1], "someone else");
  // A renewal finds it.
  await until(() => signal.aborted);
  assert.ok(signal.reason instanceof LockLost);
  assert.deepEqual([signal.reason.reason, signal.reason.lockName], ["taken", names.join(", ")]);
  assert.deepEqual([several.held, several.fence, several.names], [false, fence, names]);
  await until(async () => (await present(names)) === 1);
  await assert.rejects(several.release(), LockLost);
});

test("a lock of several names is acquired again, and disposed of", async () => {
  const names = some(2);
  const several = redlock.lockAll(names);
  for (const end of ["release", Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]) {
    await several.acquire();
    await several[end]();
    assert.equal(await present(names), 0);
    assert.deepEqual(several.names, names);
    await several.release();
  }
});

test("an aborted acquire of several names leaves no key", async () => {
  const names = some(2);
  const held = await redlock.lock(names[0]).acquire();
  const error = await failure(() => redlock.lockAll(names).acquire(AbortSignal.timeout(50)));
  assert.equal(error.name, "TimeoutError");
  await held.release();
  assert.equal(await present(names), 0);
});

test("the end of a process releases every name", async () => {
  const names = some(3);
  for (const [end, code] of [
    ["", 0],
    ["process.exit(7)", 7],
    ["throw new Error('mine')", 1],
  ]) {
    const body = `
      const several = await redlock.lockAll(${JSON.stringify(names)}).acquire();
      console.log(several.fence);
      ${end}
    `;
    await ends(start([server], fresh(), body), code);
    assert.equal(await present(names), 0, end);
  }
});

test("several names that are collected as garbage stay held", async () => {
  const names = some(2);
  const program = start(
    [server],
    fresh(),
    `
      // This is in a function, because a module's own frame keeps its values alive.
      await (async () => {
        await redlock.lockAll(${JSON.stringify(names)}).acquire();
      })();
      console.log("acquired");
      setInterval(() => gc(), 10);
      process.stdin.on("end", () => process.exit()).resume();
    `,
    "--expose-gc",
  );
  await until(() => program.errors.includes("REDLOCK_LOCK_ABANDONED"));
  assert.equal(await present(names), names.length);
  program.child.stdin.end();
  await ends(program);
  assert.equal(await present(names), 0);
});

test("several names of the default client, in memory", async (t) => {
  t.after(() => configure());
  const memory = new MemoryServer();
  configure(memory.url);
  memory.hold("b");
  const several = lockAll(["a", "b"]);
  assert.equal(await several.tryAcquire(), false);
  memory.release("b");
  await several.acquire();
  assert.equal(await lock("a").tryAcquire(), false);
  lose(several, "deleted");
  assert.throws(() => several.check(), LockLost);
});
