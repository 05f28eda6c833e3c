import assert from "node:assert/strict";
import { test } from "node:test";
import { Redlock } from "redlock-rs";
import { ends, start } from "./programs.mjs";
import { cluster, fresh, serve, until } from "./servers.mjs";

const server = await serve();
const redlock = new Redlock(server.url);
/** One node, and five. */
const clusters = await Promise.all([1, 5].map((count) => Promise.all(Array.from({ length: count }, () => serve()))));

const run = (name, body, ...flags) => start([server], name, body, ...flags);

for (const [what, end, code] of [
  ["an idle client lets the process end at once", "await lock.release();", 0],
  ["a held lock lets the process end at once, and is released", "lock.signal;", 0],
  ["a client can be closed once the loop is empty", "process.on('beforeExit', () => redlock.close());", 0],
  ["process.exit releases", "process.exit(7);", 7],
  ["an uncaught exception releases", "setTimeout(() => { throw new Error('mine'); });", 1],
  ["an unhandled rejection of others releases", "Promise.reject(new Error('mine'));", 1],
]) {
  test(what, async () => {
    const name = fresh();
    const { errors } = await ends(run(name, `await lock.acquire(); console.log(lock.fence); ${end}`), code);
    assert.equal(errors.includes("Error: mine"), code === 1, errors);
    assert.equal(await server.ask("EXISTS", name), 0);
  });
}

test("process.exit in the middle of an acquire leaves no key", async () => {
  const moments = [
    "process.exit();",
    "queueMicrotask(() => process.exit());",
    "setImmediate(() => process.exit());",
    "setTimeout(() => process.exit(), 1);",
    "setTimeout(() => process.exit(), 3);",
    "acquired.then(() => process.exit());",
  ];
  for (const moment of moments) {
    const name = fresh();
    await ends(run(name, `const acquired = lock.acquire(); console.log('pending'); ${moment}`));
    assert.equal(await server.ask("EXISTS", name), 0, moment);
  }
});

test("a pending call keeps the process alive", async () => {
  const name = fresh();
  const held = await redlock.lock(name).acquire();
  const program = run(name, "console.log('waiting'); lock.acquire().then(() => console.log('acquired'));");
  // It has tried, and nothing has ended it so far.
  const connected = async () =>
    /cmd=(eval|get|client)/.test(await server.ask("CLIENT", "LIST")) && program.output !== "";
  await until(connected);
  assert.equal(program.child.exitCode, null);
  await held.release();
  const { output } = await ends(program);
  assert.equal(output, "waiting\nacquired\n");
});

test("servers that go down under held locks and pending calls are no unhandled rejection", async () => {
  const servers = await cluster(5);
  const program = start(
    servers,
    fresh(),
    `
      const short = { ttl: 3_000 };
      // Lost with nobody listening; in a body that fails first; in one that is told.
      await redlock.lock("unheard", short).acquire();
      const { signal } = await redlock.lock("held", short).acquire();
      const told = () => new Promise((resolve) => signal.addEventListener("abort", resolve));
      const begins = [];
      const begun = [0, 1].map(() => new Promise((resolve) => begins.push(resolve)));
      const failing = redlock.lock("failing", short).using(async () => {
        begins[0]();
        await told();
        throw new Error("mine");
      });
      const heard = redlock.lock("told", short).using((signal) => {
        begins[1]();
        return new Promise((resolve) => signal.addEventListener("abort", resolve));
      });
      const outcomes = [failing, heard].map((work) => work.catch((error) => error));
      // Waiting, aborted while the servers are down, and given up.
      const controller = new AbortController();
      const waits = [redlock.lock("held").acquire({ signal: controller.signal }), redlock.lock("held").acquire({ timeout: 3_000 })];
      for (const wait of waits) outcomes.push(wait.catch((error) => error));
      await Promise.all(begun);
      console.log("held");
      await told();
      controller.abort(new Error("aborted"));
      for (const { code, message } of await Promise.all(outcomes)) console.log(code ?? message);
    `,
    "--unhandled-rejections=strict",
  );
  await until(() => program.output !== "");
  await Promise.all(servers.map((server) => server.stop()));
  const { output, errors } = await ends(program);
  assert.equal(output, "held\nmine\nlost\naborted\nunavailable\n");
  assert.equal(errors, "");
});

test("a held lock that is collected as garbage stays held, with a warning, until its client is closed or the process ends", async () => {
  const name = fresh();
  const program = run(
    name,
    `
      const other = new Redlock(${JSON.stringify(server.url)}, { ttl: 600_000 });
      await redlock.lock(${JSON.stringify(name)}, { ttl: 3_000 }).acquire();
      const { signal } = await redlock.lock("kept").acquire();
      // This is in a function, because a module's own frame keeps its values alive.
      await (async () => {
        const watched = await redlock.lock("watched").acquire();
        watched.signal.addEventListener("abort", () => undefined);
        await other.lock("closed").acquire();
      })();
      process.stdin.once("data", async () => console.log(await other.close({ limit: 10_000 }) ?? "closed"));
      setInterval(() => gc(), 10);
      process.stdin.on("end", () => process.exit(signal.aborted ? 1 : 0)).resume();
    `,
    "--expose-gc",
  );
  const warnings = () => program.errors.match(/\[REDLOCK_LOCK_ABANDONED\].*/g) ?? [];
  await until(() => warnings().length === 3);
  const left = () => server.ask("PTTL", name);
  let [rises, before] = [0, await left()];
  await until(async () => {
    const now = await left();
    rises += now > before;
    before = now;
    assert.ok(now > 0, "it is held for as long as the process lives");
    return rises > 3;
  });
  assert.equal(await server.ask("EXISTS", name, "watched", "kept", "closed"), 4);
  program.child.stdin.write("close\n");
  await until(() => program.output === "closed\n");
  assert.equal(await server.ask("EXISTS", name, "watched", "kept"), 3, "locks of another client");
  assert.equal(await server.ask("EXISTS", "closed"), 0);
  program.child.stdin.end();
  await ends(program);
  assert.equal(await server.ask("EXISTS", name, "watched", "kept"), 0);
  assert.deepEqual(
    warnings().map((warning) => [name, "watched", "closed"].some((each) => warning.includes(each))),
    [true, true, true],
  );
});

test("a body that only waits for its signal keeps its lock", async () => {
  const names = [fresh(), fresh(), fresh()];
  const program = run(
    fresh(),
    `
      const [first, second, third] = ${JSON.stringify(names)};
      // This is in a function, because a module's own frame keeps its values alive.
      await (async () => {
        await new Promise((runs) => {
          const body = (signal) => new Promise((settle) => runs(signal.addEventListener("abort", settle)));
          const bodies = [
            redlock.lock(first, { ttl: 3_000 }).using(body),
            redlock.locked(second, { ttl: 3_000, passLock: true }, ({ signal }) => body(signal))(),
            redlock.election(third, { ttl: 3_000 }).run(body),
          ];
          for (const running of bodies) running.catch(({ code }) => console.log(code));
        });
        await redlock.lock("garbage").acquire();
      })();
      setInterval(() => gc(), 10);
    `,
    "--expose-gc",
  );
  await until(() => program.errors.includes("REDLOCK_LOCK_ABANDONED"));
  assert.equal(await server.ask("EXISTS", ...names), 3);
  await server.ask("DEL", ...names);
  await until(() => program.output === "lost\nlost\n");
  program.child.kill();
});

test("a wait for a loss keeps the process alive", async () => {
  const name = fresh();
  const body = `
    const held = redlock.lock(${JSON.stringify(name)}, { ttl: 1_000, autoRenew: false });
    await held.acquire();
    const loss = await held.lost();
    console.log(loss.reason);
  `;
  const { output } = await ends(run(fresh(), body));
  assert.equal(output, "expired\n");
});

test("the first call's context of AsyncLocalStorage is not kept, and nobody else runs in it", async () => {
  const body = `
    import { AsyncLocalStorage } from "node:async_hooks";
    const storage = new AsyncLocalStorage();
    const request = await (async () => {
      const request = { id: 1 };
      await storage.run(request, async () => {
        await lock.acquire();
        await lock.release();
      });
      return new WeakRef(request);
    })();
    const holder = await redlock.lock("held").acquire();
    const waits = new AbortController();
    let seen = "nothing";
    const waiting = redlock.lock("held").acquire({ signal: waits.signal }).catch(() => undefined);
    const lost = redlock.lock("short", { ttl: 200, autoRenew: false });
    await lost.acquire();
    await new Promise((resolve) => lost.signal.addEventListener("abort", () => {
      seen = storage.getStore();
      resolve();
    }));
    waits.abort();
    await waiting;
    await holder.release();
    for (let i = 0; i < 10; i += 1) {
      await new Promise((resolve) => setTimeout(resolve, 10));
      gc();
    }
    console.log(seen, request.deref());
  `;
  const { output } = await ends(run(fresh(), body, "--expose-gc"));
  assert.equal(output, "undefined undefined\n");
});

// --- SIGTERM ---

/** The slack for a busy machine. */
const SLACK_MS = 1_000;

/** How soon a process that is asked to end has released what it holds. */
const END_MS = 1_000;

/** Sends SIGTERM to a program that holds one lock and waits for another; returns how it ended. */
async function terminated(servers, handler) {
  const [name, contended] = [fresh(), fresh()];
  const holder = await new Redlock(servers.map(({ url }) => url)).lock(contended).acquire();
  const left = async (key) =>
    (await Promise.all(servers.map((server) => server.ask("PTTL", key)))).filter((ttl) => ttl >= 0);
  // A node without it would give it to the program, which may be killed before it gives it back.
  await until(async () => (await left(contended)).length === servers.length);
  const waiting = `
    const ending = new AbortController();
    await lock.acquire();
    ${handler};
    redlock.lock(${JSON.stringify(contended)}).acquire({ signal: ending.signal }).catch(() => undefined);
    console.log("waiting");
  `;
  const program = start(servers, name, waiting);
  await until(() => program.output !== "");
  const asked = performance.now();
  program.child.kill("SIGTERM");
  const ended = await program.ended;
  assert.ok(performance.now() - asked < END_MS + SLACK_MS, `ended after ${performance.now() - asked} ms`);
  const kept = await left(name);
  holder.check();
  await holder.release();
  // A caller that is gone does not take the lock.
  await until(async () => (await left(contended)).length === 0);
  return { ...ended, kept };
}

for (const [what, handler] of [
  ["process.exit in a handler of SIGTERM", "process.on('SIGTERM', () => process.exit(143))"],
  [
    "a handler of SIGTERM that cleans up",
    `process.on("SIGTERM", async () => {
      ending.abort();
      await lock.release();
      process.exitCode = 143;
    })`,
  ],
]) {
  test(`${what} releases, on one node and on five`, async () => {
    for (const { code, kept } of await Promise.all(clusters.map((servers) => terminated(servers, handler)))) {
      assert.equal(code, 143);
      assert.deepEqual(kept, []);
    }
  });
}

test("a process that SIGTERM ends by default leaves its locks to their ttl", async () => {
  const ended = await Promise.all(clusters.map((servers) => terminated(servers, "")));
  for (const [place, { signal, kept }] of ended.entries()) {
    assert.equal(signal, "SIGTERM");
    assert.ok(kept.length > clusters[place].length / 2, "a quorum has it");
    assert.ok(Math.max(...kept) <= 600_000);
  }
});

// --- An event loop that is busy ---

const TTL = 2_000;
/** Longer than a test takes. */
const LIMIT = 15_000;

async function isKept(servers) {
  const name = fresh();
  const program = start(
    servers,
    name,
    `
      const kept = await redlock.lock(${JSON.stringify(name)}, { ttl: ${TTL} }).acquire();
      console.log("held");
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1.5 * ${TTL});
      kept.check();
      console.log("held");
      process.stdin.once("data", () => kept.release());
    `,
  );
  const urls = servers.map(({ url }) => url);
  const other = new Redlock(urls, { nodeTimeout: 5_000 }).lock(name);
  await until(() => program.output !== "");
  await until(async () => {
    assert.equal(await other.tryAcquire(), false);
    return program.output === "held\nheld\n" || program.child.exitCode !== null;
  }, LIMIT);
  program.child.stdin.end("release");
  await ends(program);
  assert.equal(await other.tryAcquire(), true);
}

test("a lock is renewed while the event loop does not run, on one node and on five", () =>
  Promise.all(clusters.map(isKept)));
