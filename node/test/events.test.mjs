// What the engine tells operators: channels, and warnings of the process.
import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { Redlock } from "redlock-rs";
import { lose, MemoryServer } from "redlock-rs/testing";
import { ends, run, start } from "./programs.mjs";
import { fresh, Server, until } from "./servers.mjs";

const redlock = new Redlock(new MemoryServer().url);

/** Collects the events of a channel until the test ends. */
function heard(t, topic) {
  const events = [];
  const channel = `redlock:${topic}`;
  const listener = (event, name) => {
    assert.equal(name, channel);
    events.push(event);
  };
  subscribe(channel, listener);
  t.after(() => unsubscribe(channel, listener));
  return events;
}

/** Runs a program with locks of a store in memory. A loss at will is an event before `lose` returns. */
const local = (body) =>
  run(`
    import { subscribe } from "node:diagnostics_channel";
    import { lock, configure, stats } from "redlock-rs";
    import { lose, MemoryServer } from "redlock-rs/testing";
    configure(new MemoryServer().url);
    ${body}
  `);

test("a loss is published with its facts", async (t) => {
  const events = heard(t, "lock");
  const lock = await redlock.lock(fresh()).acquire();
  const now = Date.now();
  lose(lock, "taken");
  await until(() => events.length > 0);
  const [{ at, message, ...event }] = events;
  assert.deepEqual(event, {
    code: "lock_lost",
    topic: "lock",
    level: "warn",
    fields: { name: lock.name, reason: "taken" },
  });
  assert.ok(Math.abs(at - now) < 5_000, `${at} and ${now}`);
  assert.equal(message, "a held lock is lost");
});

test("a burst loses the oldest events, and says how many", async () => {
  const { output } = await ends(
    local(`
      const locks = [];
      for (let number = 0; number < 1_500; number += 1) locks.push(await lock("burst-" + number).acquire());
      const names = [];
      const dropped = [];
      subscribe("redlock:lock", ({ fields }) => names.push(fields.name));
      subscribe("redlock:process", (event) => dropped.push(event));
      for (const lock of locks) lose(lock, "expired");
      const alive = setInterval(() => undefined, 1_000);
      while (names.length === 0 || names.at(-1) !== "burst-1499") await new Promise(setImmediate);
      clearInterval(alive);
      const [{ code, topic, level, fields }] = dropped;
      console.log(JSON.stringify({ code, topic, level, count: Number(fields.count) + names.length }));
      console.log(dropped.length, Number(fields.count) === stats().redlock_events_dropped_total.points[0].value);
    `),
  );
  const [event, counts] = output.trim().split("\n");
  assert.deepEqual(JSON.parse(event), { code: "events_dropped", topic: "process", level: "warn", count: 1_500 });
  assert.equal(counts, "1 true");
});

test("a subscriber that throws stops neither other events nor locks", async () => {
  const { output, errors } = await ends(
    local(`
      const thrown = [];
      process.on("uncaughtException", (error) => thrown.push(error.message));
      const names = [];
      subscribe("redlock:lock", ({ fields }) => { throw new Error("mine, for " + fields.name); });
      subscribe("redlock:lock", ({ fields }) => names.push(fields.name));
      const held = await lock("held").acquire();
      for (const name of ["one", "two"]) lose(await lock(name).acquire(), "taken");
      const alive = setInterval(() => undefined, 1_000);
      while (thrown.length < 2) await new Promise(setImmediate);
      clearInterval(alive);
      await lock("later").acquire();
      held.check();
      await held.release();
      console.log(names.join(), thrown.join());
    `),
  );
  assert.equal(output, "one,two mine, for one,mine, for two\n");
  assert.equal(errors, "");
});

test("neither a subscriber nor an event keeps the process alive", async () => {
  const { output } = await ends(
    local(`
      subscribe("redlock:lock", ({ code }) => console.log(code));
      const held = await lock("held").acquire();
      console.log("held");
      lose(held, "taken");
    `),
  );
  assert.equal(output, "held\nlock_lost\n");
});

test("events that came before the end are published at the end, and in no context of a call", async () => {
  const body = (end) => `
    import { AsyncLocalStorage } from "node:async_hooks";
    const storage = new AsyncLocalStorage();
    subscribe("redlock:lock", ({ fields }) => console.log(fields.name, storage.getStore()));
    const held = await storage.run("a request", () => lock("held").acquire());
    storage.run("a request", () => {
      lose(held, "taken");
      // No turn of the event loop comes any more.
      ${end}
    });
  `;
  assert.equal((await ends(local(body("process.exit(3);")), 3)).output, "held undefined\n");
  const { output, errors } = await ends(local(body("throw new Error('mine');")), 1);
  assert.equal(output, "held undefined\n");
  assert.match(errors, /Error: mine/);
});

test("each thread hears of the whole process", async (t) => {
  const events = heard(t, "lock");
  const code = `
    const { subscribe } = require("node:diagnostics_channel");
    const { Redlock } = require("redlock-rs");
    const { MemoryServer } = require("redlock-rs/testing");
    const { parentPort } = require("node:worker_threads");
    subscribe("redlock:lock", ({ fields }) => parentPort.postMessage(fields.name));
    new Redlock(new MemoryServer().url).lock("mine").acquire().then(() => parentPort.postMessage("ready"));
    setInterval(() => undefined, 1_000);
  `;
  const worker = new Worker(code, { eval: true });
  t.after(() => worker.terminate());
  const messages = [];
  worker.on("message", (message) => messages.push(message));
  await until(() => messages.length === 1);
  const lock = await redlock.lock(fresh()).acquire();
  lose(lock, "taken");
  await until(() => messages.length === 2 && events.length === 1);
  assert.deepEqual(messages, ["ready", lock.name]);
  assert.equal(events[0].fields.name, lock.name);
});

test("a worker that ends by itself publishes what came before", async () => {
  const code = `
    const { subscribe } = require("node:diagnostics_channel");
    const { Redlock } = require("redlock-rs");
    const { MemoryServer, lose } = require("redlock-rs/testing");
    const { parentPort } = require("node:worker_threads");
    subscribe("redlock:lock", ({ fields }) => parentPort.postMessage(fields.name));
    new Redlock(new MemoryServer().url).lock("mine").acquire().then((lock) => {
      lose(lock, "taken");
      process.exit();
    });
  `;
  const worker = new Worker(code, { eval: true });
  const messages = [];
  worker.on("message", (message) => messages.push(message));
  await new Promise((resolve) => worker.once("exit", resolve));
  assert.deepEqual(messages, ["mine"]);
});

test("a node that may evict is a warning, once for each node, however many clients and threads there are", async (t) => {
  const options = { maxmemory: "100mb", "maxmemory-policy": "allkeys-lru" };
  const servers = await Promise.all([1, 2, 3].map(() => Server.start(options)));
  t.after(() => Promise.all(servers.map((server) => server.stop())));
  const nodes = JSON.stringify(servers.map(({ url }) => url));
  const worker = `
    const { Redlock } = require("redlock-rs");
    const lock = new Redlock(${nodes}).lock("in a worker");
    lock.acquire().then(() => lock.release());
  `;
  const { errors } = await ends(
    start(
      servers,
      fresh(),
      `
        import { once } from "node:events";
        import { Worker } from "node:worker_threads";
        await lock.using(() => undefined);
        for (const url of ${nodes}) await new Redlock(url).lock("foo").using(() => undefined);
        const workers = [1, 2, 3].map(() => new Worker(${JSON.stringify(worker)}, { eval: true, execArgv: [] }));
        await Promise.all(workers.map((worker) => once(worker, "exit")));
        console.log("done");
      `,
    ),
  );
  assert.equal(errors.match(/\[REDLOCK_NODE_EVICTS\] RedlockWarning: /g)?.length, 3, errors);
  for (const { socket } of servers) assert.ok(errors.includes(socket), errors);
  assert.match(errors, /set maxmemory-policy noeviction \(node: unix:\/\/.*, policy: allkeys-lru\)/);
});

test("an import listens to nothing", async () => {
  const { output } = await ends(
    run(`
      import { channel } from "node:diagnostics_channel";
      const listeners = process.listenerCount("exit");
      await import("redlock-rs");
      const has = ["node", "lock", "process"].map((topic) => channel("redlock:" + topic).hasSubscribers);
      console.log(has.join(), process.listenerCount("exit") - listeners);
    `),
  );
  assert.equal(output, "false,false,false 0\n");
});
