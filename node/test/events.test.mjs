// What the engine tells operators: channels, and warnings of the process.
import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { createRequire } from "node:module";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { Redlock } from "redlock-rs";
import { lose, MemoryServer } from "redlock-rs/testing";
import { ends, run, start } from "./programs.mjs";
import { fresh, Server, until } from "./servers.mjs";

const native = createRequire(import.meta.url)("../lib/native.js");

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

/** What programs need to have locks and to see what was counted. A loss at will is an event before `lose` returns. */
const HEAD = `
  import { subscribe } from "node:diagnostics_channel";
  import { lock, configure, stats, Redlock } from "redlock-rs";
  import { lose, MemoryServer } from "redlock-rs/testing";
  const total = (name) => stats()[name].points.reduce((sum, { value }) => sum + value, 0);
`;

/** Runs a program with locks of a store in memory. */
const local = (body, ...flags) => run(`${HEAD} configure(new MemoryServer().url); ${body}`, ...flags);

/** How often the warning with this code stands in what a program wrote. */
const warnings = (errors, code) => errors.split(`[REDLOCK_${code}] RedlockWarning: `).length - 1;

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

test("only events with a subscriber are built", async (t) => {
  const { takeEvents } = native;
  const taken = [];
  native.takeEvents = (queue, topics) => {
    const result = takeEvents(queue, topics);
    taken.push([topics.join(), result.events.length]);
    return result;
  };
  t.after(() => {
    native.takeEvents = takeEvents;
  });
  const turns = [() => undefined, () => heard(t, "node"), () => heard(t, "lock")];
  for (const [turn, begin] of turns.entries()) {
    begin();
    lose(await redlock.lock(fresh()).acquire(), "taken");
    await until(() => taken.length > turn);
  }
  assert.deepEqual(taken, [
    ["", 0],
    ["node", 0],
    ["node,lock", 1],
  ]);
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
      console.log(dropped.length, Number(fields.count) === total("redlock_events_dropped_total"));
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

test("a subscriber that throws and that nobody expects ends the process, which releases", async (t) => {
  const server = await Server.start();
  t.after(() => server.stop());
  const name = fresh();
  const { errors } = await ends(
    start(
      [server],
      name,
      `
        import { subscribe } from "node:diagnostics_channel";
        import { lose } from "redlock-rs/testing";
        await lock.acquire();
        console.log("held");
        subscribe("redlock:lock", () => { throw new Error("mine"); });
        lose(await redlock.lock("other").acquire(), "taken");
        setInterval(() => undefined, 1_000);
      `,
    ),
    1,
  );
  assert.match(errors, /Error: mine/);
  assert.equal(await server.ask("EXISTS", name), 0);
});

test("a subscriber that blocks costs no lock its renewal", async () => {
  const { output } = await ends(
    local(`
      const held = await lock("held", { ttl: 1_000 }).acquire();
      let blocked = false;
      subscribe("redlock:lock", () => {
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_500);
        blocked = held.held;
      });
      lose(await lock("other").acquire(), "taken");
      const alive = setInterval(() => undefined, 1_000);
      while (!blocked) await new Promise(setImmediate);
      clearInterval(alive);
      held.check();
      await held.release();
      console.log(held.held);
    `),
  );
  assert.equal(output, "false\n");
});

test("callers whose locks are taken come before subscribers", async (t) => {
  const events = heard(t, "lock");
  const { drain, takeEvents } = native;
  const turns = [];
  let drained;
  native.drain = (...given) => {
    drained = drain(...given);
    turns.push(drained);
    return drained;
  };
  native.takeEvents = (...given) => {
    assert.deepEqual(drained, [0], "a turn of its own");
    return takeEvents(...given);
  };
  t.after(() => Object.assign(native, { drain, takeEvents }));
  for (let turn = 1; turn <= 20; turn += 1) {
    const losing = await redlock.lock(fresh()).acquire();
    const acquired = redlock.lock(fresh()).acquire();
    lose(losing, "taken");
    // Both become ready before the next turn of the event loop, or nearly always.
    for (const end = performance.now() + 20; performance.now() < end; );
    await acquired;
    await until(() => events.length === turn);
  }
  assert.ok(
    turns.length > 20 && turns.every((ready) => ready.length === 1 || !ready.includes(0)),
    JSON.stringify(turns),
  );
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

test("a subscriber that ends the process does not cost the others their events", async () => {
  const { output } = await ends(
    local(
      `
        const locks = [];
        for (const name of ["one", "two", "three"]) locks.push(await lock(name).acquire());
        subscribe("redlock:lock", ({ fields }) => {
          console.log(fields.name);
          if (fields.name === "one") process.exit(4);
        });
        for (const lock of locks) lose(lock, "taken");
        setInterval(() => undefined, 1_000);
      `,
    ),
    4,
  );
  assert.equal(output, "one\ntwo\nthree\n");
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

test("a test runner that loads the package again hears of each event once, by one listener of the process", async () => {
  const body = `
    import { createRequire } from "node:module";
    const require = createRequire(import.meta.url + "/x");
    const load = () => {
      for (const path of Object.keys(require.cache)) if (path.includes("/lib/")) delete require.cache[path];
      return [require("redlock-rs"), require("redlock-rs/testing")];
    };
    const names = [];
    const listeners = process.listenerCount("exit");
    subscribe("redlock:lock", ({ fields }) => names.push(fields.name));
    const alive = setInterval(() => undefined, 1_000);
    const loaded = [];
    for (const name of ["first", "second", "third"]) {
      const [{ Redlock }, { lose, MemoryServer }] = load();
      loaded.push([new Redlock(new MemoryServer().url), lose]);
      await loaded.at(-1)[0].lock(name).acquire();
    }
    for (const [index, [client, lose]] of loaded.entries()) {
      lose(await client.lock("lost-" + index).acquire(), "taken");
      while (names.length <= index) await new Promise(setImmediate);
    }
    // Another event for each of them would have come before this one.
    lose(await lock("last").acquire(), "taken");
    while (names.at(-1) !== "last") await new Promise(setImmediate);
    clearInterval(alive);
    console.log(names.join(), new Set(loaded.map(([client]) => client.constructor)).size);
    console.log(process.listenerCount("exit") - listeners);
  `;
  const { output } = await ends(local(body));
  assert.equal(output, "lost-0,lost-1,lost-2,last 3\n1\n");
});

// --- Warnings ---

/** Servers that may evict keys, until the test ends. */
async function evicting(t, count) {
  const options = { maxmemory: "100mb", "maxmemory-policy": "allkeys-lru" };
  const servers = await Promise.all(Array.from({ length: count }, () => Server.start(options)));
  t.after(() => Promise.all(servers.map((server) => server.stop())));
  return servers;
}

/** Uses a lock, for a program that has it. */
const USE = "await lock.acquire(); await lock.release();";

test("a node that may evict is a warning, once for each node, however many clients and threads there are", async (t) => {
  const servers = await evicting(t, 3);
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
        ${USE}
        for (const url of ${nodes}) await new Redlock(url).lock("foo").using(() => undefined);
        const workers = [1, 2, 3].map(() => new Worker(${JSON.stringify(worker)}, { eval: true, execArgv: [] }));
        await Promise.all(workers.map((worker) => once(worker, "exit")));
        console.log("done");
      `,
    ),
  );
  assert.equal(warnings(errors, "NODE_EVICTS"), 3, errors);
  for (const { socket } of servers) assert.ok(errors.includes(socket), errors);
  assert.match(errors, /set maxmemory-policy noeviction \(node: unix:\/\/.*, policy: allkeys-lru\)/);
});

test("what comes again and again is one warning, without what a provider threw", async () => {
  const { errors } = await ends(
    run(`${HEAD}
      const credentials = () => { throw new TypeError("S3CR3T"); };
      const client = new Redlock("unix:///nowhere/at-all", { credentials });
      const failed = [];
      subscribe("redlock:node", (event) => {
        if (event.code !== "login_failed" || failed.push(event) < 2) return;
        console.log(JSON.stringify(failed[1]));
        client.close();
      });
      // It keeps the process alive until then.
      await client.lock("foo").acquire().catch(() => undefined);
    `),
  );
  assert.equal(warnings(errors, "LOGIN_FAILED"), 1, errors);
  assert.ok(errors.includes("TypeError") && !errors.includes("S3CR3T"), errors);
});

test("the flags of Node decide about warnings", async (t) => {
  const servers = await evicting(t, 1);
  const body = `
    process.on("warning", ({ name, code }) => console.log(name, code));
    ${USE}
    await new Promise(setImmediate);
  `;
  const flags = {
    "": /^\(node:\d+\) \[REDLOCK_NODE_EVICTS\] RedlockWarning: .*\n\(Use `node --trace-warnings/,
    "--no-warnings": /^$/,
    "--trace-warnings": /RedlockWarning: .*\n {4}at /,
    "--disable-warning=REDLOCK_NODE_EVICTS": /^$/,
  };
  for (const [flag, expected] of Object.entries(flags)) {
    const { output, errors } = await ends(start(servers, fresh(), body, ...(flag === "" ? [] : [flag])));
    assert.equal(output, "RedlockWarning REDLOCK_NODE_EVICTS\n", flag);
    assert.match(errors, expected, flag);
  }
});

test("a warning in the last turn of the process is still given", async (t) => {
  const servers = await evicting(t, 1);
  const body = `
    import { stats } from "redlock-rs";
    const evicts = () => stats().redlock_node_evicts.points.some(({ value }) => value === 1);
    process.on("warning", ({ name, code }) => console.log(name, code));
    lock.acquire();
    // No turn of the event loop comes any more.
    for (const end = performance.now() + 5_000; !evicts() && performance.now() < end; );
    process.exit();
  `;
  const { output, errors } = await ends(start(servers, fresh(), body));
  assert.equal(output, "RedlockWarning REDLOCK_NODE_EVICTS\n");
  assert.equal(warnings(errors, "NODE_EVICTS"), 1, errors);
});

test("a program that replaces what warns and throws there loses no event", async (t) => {
  const servers = await evicting(t, 2);
  const body = `
    import { subscribe } from "node:diagnostics_channel";
    const thrown = [];
    process.on("uncaughtException", (error) => thrown.push(error.message));
    process.emitWarning = (text, { code }) => { throw new Error(code); };
    let events = 0;
    subscribe("redlock:node", ({ code }) => { events += code === "node_evicts" ? 1 : 0; });
    ${USE}
    const alive = setInterval(() => undefined, 1_000);
    while (thrown.length < 2) await new Promise(setImmediate);
    clearInterval(alive);
    console.log(events, thrown.join());
  `;
  const { output } = await ends(start(servers, fresh(), body));
  assert.equal(output, "2 REDLOCK_NODE_EVICTS,REDLOCK_NODE_EVICTS\n");
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
