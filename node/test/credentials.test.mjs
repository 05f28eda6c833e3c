// Logins from a function.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { inspect } from "node:util";
import { runInNewContext } from "node:vm";
import { Worker } from "node:worker_threads";
import { configure, LockInvalidArgument, LockUnavailable, Redlock } from "redlock-rs";
import { ends, run } from "./programs.mjs";
import { failure, fresh, Server, serve, until } from "./servers.mjs";

const OWN = "a credentials provider cannot use a lock of its own client; use another client";

const server = await serve();

/** Makes a user with a password on the server, and returns its login. */
async function user(more = {}) {
  const login = { username: fresh("user"), password: `S3CR3T-${fresh()}`, ...more };
  await server.ask("ACL", "SETUSER", login.username, "on", `>${login.password}`, "~*", "+@all");
  return login;
}

/** The ids of the connections of a user. */
async function connections({ username }) {
  const list = await server.ask("CLIENT", "LIST");
  return list.split("\n").flatMap((line) => (line.includes(` user=${username} `) ? /^id=(\d+)/.exec(line)[1] : []));
}

/** Acquires and releases a lock of a client. */
async function use(client) {
  const held = await client.lock(fresh()).acquire({ timeout: 5_000 });
  await held.release();
}

/** The error of an acquire that fails because the provider does. Nothing is sent to the address. */
async function failed(credentials) {
  const client = new Redlock(`unix:///nowhere/${fresh()}`, { credentials });
  const error = await failure(() => client.lock(fresh()).acquire({ timeout: 0 }));
  assert.ok(error instanceof LockUnavailable, error?.stack);
  client.close();
  return error;
}

test("a login reaches the server, from a function or a promise", async () => {
  const seen = [];
  const login = await user();
  for (const [kind, credentials] of Object.entries({
    function: (...given) => {
      seen.push(given);
      return login;
    },
    async: async (...given) => {
      seen.push(given);
      return login;
    },
    // biome-ignore lint/suspicious/noThenProperty: on purpose
    thenable: () => ({ then: (resolve) => resolve({ ...login, expiresIn: null }) }),
    accessors: () => Object.create({ ...login }),
  })) {
    const client = new Redlock(server.url, { credentials });
    await use(client);
    await use(client);
    assert.notEqual((await connections(login)).length, 0, kind);
    client.close();
    await until(async () => (await connections(login)).length === 0);
  }
  assert.deepEqual(seen, [[], []], "called once for each client, without arguments");
});

test("without a user, it is the default user", async (t) => {
  const closed = await Server.start({ requirepass: "S3CR3T" });
  t.after(() => closed.stop());
  for (const login of [{ password: "S3CR3T" }, { username: null, password: "S3CR3T" }]) {
    const client = new Redlock(closed.url, { credentials: () => login });
    await use(client);
    client.close();
  }
});

test("clients with the same function share their logins", async () => {
  const login = await user();
  const [shared, own] = [0, 0].map(() => ({ calls: 0 }));
  const credentialsOf = (counter) => () => {
    counter.calls += 1;
    return login;
  };
  const credentials = credentialsOf(shared);
  const clients = [1, 2, 3].map(() => new Redlock(server.url, { credentials }));
  await Promise.all(clients.map(use));
  await use(new Redlock(server.url, { credentials: credentialsOf(own) }));
  assert.deepEqual([shared.calls, own.calls], [1, 1]);
});

test("what is thrown is the cause, and only its class is shown", async () => {
  class Nameless extends Error {
    static name = 17;
  }
  const exotic = new Proxy(new Error("S3CR3T"), {
    getPrototypeOf() {
      throw new Error("S3CR3T");
    },
  });
  for (const [thrown, kind] of [
    [new TypeError("the token S3CR3T has expired"), "TypeError"],
    [runInNewContext("new RangeError('S3CR3T')"), "RangeError"],
    [new Nameless("S3CR3T"), "Error"],
    [exotic, "object"],
    ["S3CR3T", "string"],
    [{ S3CR3T: "S3CR3T" }, "object"],
    [null, "object"],
  ]) {
    const throws = () => {
      throw thrown;
    };
    for (const credentials of [throws, async () => throws()]) {
      const error = await failed(credentials);
      assert.ok(error.message.includes(`was not asked: the credentials provider failed: ${kind}]`), error.message);
      assert.equal(error.cause, thrown);
      assert.equal(error.nodes.length, 1);
      assert.doesNotMatch(`${error.stack} ${inspect(error.nodes)}`, /S3CR3T/);
    }
  }
  const nothing = await failed(() => Promise.reject());
  assert.equal(nothing.cause.message, "the credentials provider failed: undefined");
});

test("what is not a login is a failed call that says why, and never shows it", async () => {
  const password = "S3CR3T";
  for (const [returned, wrong] of [
    [undefined, "a login must be { username, password, expiresIn }, not undefined"],
    ["S3CR3T", "a login must be { username, password, expiresIn }, not a string"],
    [["user", "S3CR3T"], "a login must be { username, password, expiresIn }, not an Array"],
    [{}, "password must be a string without lone surrogates, not undefined"],
    [{ password: "" }, "password is empty"],
    [{ password: "S3CR3T\ud800" }, "password must be a string without lone surrogates, not a string with lone surr"],
    [{ username: 17, password }, "username must be a string without lone surrogates, not a number"],
    [{ user: "S3CR3T", password }, "a login has no properties but username, password and expiresIn"],
    [{ password, expiresIn: "S3CR3T" }, "expiresIn must be a positive number of milliseconds, not a string"],
    [{ password, expiresIn: 0 }, "expiresIn must be a positive number of milliseconds, not 0"],
    [{ password, expiresIn: Number.NaN }, "expiresIn must be a positive number of milliseconds, not NaN"],
  ]) {
    for (const credentials of [() => returned, async () => returned]) {
      const error = await failed(credentials);
      assert.ok(error.message.includes("the credentials provider failed: TypeError: "), error.message);
      assert.ok(error.message.includes(wrong), error.message);
      assert.ok(error.cause instanceof TypeError && error.cause.message.includes(wrong), error.cause.message);
      assert.doesNotMatch(`${inspect(error)} ${error.stack}`, /S3CR3T(?!")/);
    }
  }
});

test("a lock of its own client fails at once in the function, those of another client do not", async () => {
  const login = await user();
  const other = new Redlock(server.url, { credentials: () => login });
  const foo = fresh();
  const errors = [];
  const credentials = async () => {
    const own = client.lock(foo);
    for (const call of [
      () => own.acquire(),
      () => own.using(() => undefined),
      () => own.isLocked(),
      () => client.inspect(foo),
      () => twin.lock(foo).acquire(),
    ]) {
      await null;
      errors.push(await failure(call));
    }
    await use(other);
    return login;
  };
  const client = new Redlock(server.url, { credentials });
  const twin = new Redlock(server.url, { credentials });
  await use(client);
  assert.equal(errors.length, 5);
  for (const error of errors) {
    assert.ok(error instanceof LockInvalidArgument, error.stack);
    assert.equal(error.message, OWN);
  }
});

test("wrong values are refused before anything is sent", async () => {
  for (const [credentials, type] of [
    [{ username: "user", password: "S3CR3T" }, "an object"],
    ["S3CR3T", "a string"],
    [Promise.resolve("S3CR3T"), "a Promise"],
  ]) {
    for (const make of [() => new Redlock(server.url, { credentials }), () => configure(server.url, { credentials })]) {
      const error = await failure(make);
      assert.ok(error instanceof LockInvalidArgument, error.stack);
      assert.equal(error.option, "credentials");
      assert.ok(error.message.startsWith("credentials must be a function that returns a login, or null"));
      assert.ok(error.message.endsWith(`, not ${type}`), error.message);
      assert.doesNotMatch(inspect(error), /S3CR3T/);
    }
  }
  const credentials = () => assert.fail("called");
  const both = await failure(() => new Redlock(server.url, { credentials, passwordFile: "/secret" }));
  assert.match(both.message, /credentials and passwordFile are both given/);
  const ofLock = await failure(() => new Redlock(server.url).lock("foo", { credentials }));
  assert.match(ofLock.message, /^unknown option "credentials"; give it to the client as credentials/);
  await use(new Redlock(server.url, { credentials: null }));
  // A URL with a login needs no other.
  const { username, password } = await user();
  await use(new Redlock(`${server.url}?user=${username}&pass=${password}`, { credentials }));
});

test("nothing of it is ever an unhandled rejection, and one warning says that it fails", async () => {
  const program = run(
    `
      import { Redlock } from "redlock-rs";
      const kinds = [
        () => { throw new Error("S3CR3T"); },
        () => Promise.reject(new Error("S3CR3T")),
        () => ({ then() { throw new Error("S3CR3T"); } }),
        () => ({ get password() { throw new Error("S3CR3T"); } }),
        () => Promise.reject(),
        () => "S3CR3T",
        () => new Promise(() => undefined),
        async () => (await client.lock("own").acquire()).name,
      ];
      const client = new Redlock(${JSON.stringify(server.url)}, { credentials: kinds.at(-1) });
      const clients = kinds.map((credentials) => new Redlock(${JSON.stringify(server.url)}, { credentials }));
      const outcomes = clients.map((client) => client.lock("foo").acquire({ timeout: 1_500 }));
      for (const { reason } of await Promise.allSettled(outcomes)) console.log(reason.code);
      // Nobody waits any more.
      await new Promise((resolve) => setTimeout(resolve, 20));
      for (const client of clients) client.close();
      console.log("closed");
    `,
    "--unhandled-rejections=strict",
    "--trace-warnings",
  );
  const { output, errors } = await ends(program);
  assert.equal(output, `${"unavailable\n".repeat(8)}closed\n`);
  assert.match(errors, /^\(node:\d+\) \[REDLOCK_LOGIN_FAILED\] RedlockWarning: .*\n(?: {4}at .*\n)*$/);
  assert.ok(!errors.includes("S3CR3T"), errors);
});

test("a client with a function lets the process end at once, also while the function is called", async () => {
  const login = await user({ expiresIn: 200 });
  const { output } = await ends(
    run(`
      import { Redlock } from "redlock-rs";
      let calls = 0;
      const credentials = () => {
        calls += 1;
        return calls === 1 ? ${JSON.stringify(login)} : new Promise(() => undefined);
      };
      globalThis.client = new Redlock(${JSON.stringify(server.url)}, { credentials });
      await (await client.lock("ending").acquire()).release();
      while (calls < 2) await new Promise((resolve) => setTimeout(resolve, 5));
      console.log("called again");
    `),
  );
  assert.equal(output, "called again\n");
});

test("a pending acquire keeps the process alive while it waits for a login, until process.exit", async () => {
  const login = await user();
  const body = (then) => `
    import { Redlock } from "redlock-rs";
    const login = ${JSON.stringify(login)};
    const credentials = () => new Promise((resolve) => { ${then} });
    const client = new Redlock(${JSON.stringify(server.url)}, { credentials });
    client.lock("alive").acquire().then(() => console.log("acquired"));
  `;
  const waits = run(body("setTimeout(() => resolve(login), 300).unref();"));
  const exits = run(body("console.log('called'); process.exit(7);"));
  assert.equal((await ends(waits)).output, "acquired\n");
  assert.equal((await ends(exits, 7)).output, "called\n");
});

test("a worker thread that ends while a function is called harms nobody", async () => {
  const code = `
    const { Redlock } = require("redlock-rs");
    const { parentPort, workerData } = require("node:worker_threads");
    const { url, ending } = workerData;
    const credentials = () => {
      parentPort.postMessage("called");
      if (ending === "exits") setImmediate(() => process.exit(3));
      return new Promise(() => undefined);
    };
    const clients = Array.from({ length: 4 }, () => new Redlock(url, { credentials: () => credentials() }));
    for (const client of clients) client.lock("worker").acquire().catch(() => undefined);
  `;
  const login = await user({ expiresIn: 300 });
  let calls = 0;
  const credentials = () => {
    calls += 1;
    return login;
  };
  const held = await new Redlock(server.url, { credentials }).lock(fresh()).acquire();
  const one = async (ending) => {
    const worker = new Worker(code, { eval: true, workerData: { url: server.url, ending } });
    const exit = once(worker, "exit");
    await once(worker, "message");
    if (ending === "hangs") await worker.terminate();
    assert.deepEqual(await exit, [ending === "exits" ? 3 : 1]);
  };
  for (let turn = 0; turn < 4; turn += 1) await Promise.all(["hangs", "exits"].map(one));
  const before = calls;
  await until(() => calls > before);
  await held.extend();
  await held.release();
  await until(async () => (await server.ask("EXISTS", "worker")) === 0);
});

test("a client with a function can be collected as garbage, and a lock keeps the function", async () => {
  const login = await user({ expiresIn: 200 });
  const program = run(
    `
      import { Redlock } from "redlock-rs";
      const url = ${JSON.stringify(server.url)};
      const until = async (condition) => {
        while (!condition()) {
          // In a turn of its own: what a WeakRef returned stays until the end of the turn.
          await new Promise((resolve) => setTimeout(resolve, 5));
          gc();
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
      };
      const login = ${JSON.stringify(login)};
      // These are in functions, because a module's own frame keeps its values alive.
      const collected = await (async () => {
        const credentials = () => (client === undefined ? undefined : login);
        const client = new Redlock(url, { credentials });
        await (await client.lock("garbage").acquire()).release();
        return new WeakRef(client);
      })();
      await until(() => collected.deref() === undefined);
      console.log("collected");

      let calls = 0;
      const held = await (async () => {
        const credentials = () => {
          calls += 1;
          return login;
        };
        return await new Redlock(url, { credentials }).lock("kept").acquire();
      })();
      await until(() => calls > 5);
      held.check();
      await held.release();
      console.log("called");
    `,
    "--expose-gc",
  );
  assert.equal((await ends(program)).output, "collected\ncalled\n");
});
