// Elections: of many candidates, at most one leads.
import assert from "node:assert/strict";
import { getEventListeners, once } from "node:events";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { Lock, LockForbidden, LockInvalidArgument, LockUnavailable, Redlock } from "redlock-rs";
import { lose, MemoryServer } from "redlock-rs/testing";
import { ends, start } from "./programs.mjs";
import { failure, fresh, serve, until } from "./servers.mjs";

const server = await serve();
const redlock = new Redlock(server.url, { ttl: 10_000 });

const exists = async (name) => (await server.ask("EXISTS", name)) === 1;

/** The body of a candidate that must not lead. */
const never = () => assert.fail("it led");

/** The error with which `action` is refused. */
async function refused(action, option, ...mentions) {
  const error = await failure(action);
  assert.ok(error instanceof LockInvalidArgument, `${error?.stack}`);
  assert.equal(error.option, option);
  for (const text of mentions) assert.ok(error.message.includes(text), `${error.message} lacks ${text}`);
}

test("a body that throws resigns, and its error is thrown", async () => {
  const name = fresh();
  const candidate = redlock.election(name);
  const error = new RangeError("mine");
  const bodies = [
    () => {
      throw error;
    },
    async () => {
      assert.equal(await exists(name), true);
      throw error;
    },
    (_, lock) => {
      lose(lock, "taken");
      throw error;
    },
    () => {
      candidate.stop();
      throw error;
    },
  ];
  for (const body of bodies) {
    assert.equal(await failure(() => candidate.run(body)), error);
    await until(async () => !(await exists(name)));
  }
});

test("the loss that a body throws is the end of its term, and other errors are not", async () => {
  const other = redlock.lock(fresh());
  const ends = [
    (signal) => signal.throwIfAborted(),
    (_, lock) => lock.check(),
    (_, lock) => lock.extend(),
    (_, lock) => lock.release(),
    (signal) => setImmediate(undefined, { signal }),
    (signal) => once(new EventTarget(), "never", { signal }),
    (signal) => Promise.reject(new Error("stopped", { cause: signal.reason })),
    () => Promise.reject(Object.assign(new Error("stopped"), { name: "AbortError" })),
  ];
  for (const end of ends) {
    let terms = 0;
    const result = await redlock.election(fresh()).run(async (signal, lock) => {
      terms += 1;
      if (terms > 1) return "next";
      lose(lock, "deleted");
      return await end(signal, lock);
    });
    assert.deepEqual([result, terms], ["next", 2], `${end}`);
  }
  const errors = [
    () => Promise.reject(new TypeError("mine")),
    () => Promise.reject("mine"),
    async () => {
      await other.acquire();
      lose(other, "taken");
      await other.release();
    },
  ];
  for (const end of errors) {
    let terms = 0;
    const led = redlock.election(fresh()).run(async (_, lock) => {
      terms += 1;
      lose(lock, "deleted");
      await end();
    });
    const error = await failure(() => led);
    assert.ok(error === "mine" || error.message === "mine" || error.lockName === other.name, `${error}`);
    assert.equal(terms, 1);
  }
});

test("an AbortError is an error while the term lasts", async () => {
  const error = await failure(() => redlock.election(fresh()).run(() => AbortSignal.abort().throwIfAborted()));
  assert.equal(error.name, "AbortError");
});

test("a loss that the event loop had no time to report is a loss", async () => {
  const memory = new MemoryServer();
  const short = new Redlock(memory.url, { ttl: 100 });
  for (const end of [() => "ignored", (lock) => lock.check()]) {
    const name = fresh();
    let terms = 0;
    const result = await short.election(name).run((signal, lock) => {
      terms += 1;
      if (terms > 1) return "next";
      memory.hold(name, 100);
      while (lock.held);
      assert.equal(signal.aborted, false);
      return end(lock);
    });
    assert.deepEqual([result, terms], ["next", 2]);
  }
});

test("a leader that the release finds replaced has led", async () => {
  const name = fresh();
  let terms = 0;
  const result = await redlock.election(name).run(async () => {
    terms += 1;
    await server.ask("SET", name, "someone else");
    return "led";
  });
  assert.deepEqual([result, terms], ["led", 1]);
});

test("a stop in the turn in which the campaign is won runs no body", async () => {
  const name = fresh();
  const first = await redlock.lock(fresh(), { ttl: 100, autoRenew: false }).acquire();
  const candidate = redlock.election(name);
  first.signal.addEventListener("abort", () => candidate.stop());
  const led = candidate.run(never);
  while (first.held);
  // Both are in one batch.
  for (const end = performance.now() + 50; performance.now() < end; );
  assert.equal(await led, undefined);
  await until(async () => !(await exists(name)));
});

test("a stop aborts the signal of a term, which ends when the body has settled", async () => {
  const name = fresh();
  const candidate = redlock.election(name);
  let settled = false;
  let seen;
  const led = candidate.run(async (signal) => {
    seen = signal;
    await once(signal, "abort");
    assert.equal(await exists(name), true, "it still leads");
    settled = true;
    return "ignored";
  });
  await until(() => seen !== undefined);
  candidate.stop();
  assert.equal(seen.reason.name, "AbortError");
  assert.equal(await led, undefined);
  assert.equal(settled, true);
  assert.equal(await exists(name), false);
});

test("what a stopped body throws because of the signal is not an error", async () => {
  for (const end of [
    (signal) => signal.throwIfAborted(),
    (signal) => setImmediate(undefined, { signal }),
    (signal) => fetch("http://127.0.0.1:1", { signal }),
  ]) {
    const candidate = redlock.election(fresh());
    const led = candidate.run(async (signal) => {
      candidate.stop();
      await end(signal);
      return "not reached";
    });
    assert.equal(await led, undefined, `${end}`);
  }
});

test("a stop after the body has returned is too late for its result", async () => {
  const candidate = redlock.election(fresh());
  const led = candidate.run(() => {
    void setImmediate().then(() => candidate.stop());
    return 17;
  });
  assert.equal(await led, 17);
});

test("a body may release its lock, and has led", async () => {
  const name = fresh();
  const result = await redlock.election(name).run(async (signal, lock) => {
    await lock.release();
    assert.equal(await exists(name), false);
    assert.equal(signal.aborted, false);
    return "led";
  });
  assert.equal(result, "led");
});

test("no listener is left behind", async () => {
  const candidate = redlock.election(fresh());
  const signals = [];
  for (let turn = 0; turn < 3; turn += 1) {
    await candidate.run((signal, lock) => {
      signals.push(signal, lock.signal);
    });
  }
  candidate.stop();
  for (const signal of signals) {
    assert.equal(signal.aborted, false, "its term was over");
    assert.equal(getEventListeners(signal, "abort").length, 0);
  }
});

test("a campaign goes on while no quorum answers, and ends with any other failure", async (t) => {
  const answers = [
    new LockUnavailable("no quorum", { nodes: [{ node: "redis://a", answer: "no answer" }] }),
    new LockUnavailable("no quorum", { nodes: [{ node: "redis://a", answer: "no answer" }] }),
  ];
  const acquire = Lock.prototype.acquire;
  t.mock.method(Lock.prototype, "acquire", function acquired(...given) {
    const next = answers.shift();
    return next === undefined ? acquire.apply(this, given) : Promise.reject(next);
  });
  assert.equal(await redlock.election(fresh()).run(() => "led"), "led");
  assert.equal(answers.length, 0);
  for (const error of [new LockUnavailable("no thread"), new LockForbidden("no right")]) {
    answers.push(error);
    assert.equal(await failure(() => redlock.election(fresh()).run(never)), error);
  }
});

test("wrong arguments are refused", async () => {
  for (const [name, ...mentions] of [
    [["a"], "not an array"],
    ["", "empty"],
    ["redlock:waiters:a", "reserved"],
  ]) {
    await refused(() => redlock.election(name), "name", ...mentions);
  }
  for (const [options, option, message] of [
    [{ timeout: 0 }, "timeout", "timeout is not an option of an election"],
    [{ autoRenew: true }, "autoRenew", "autoRenew is not an option of an election"],
    [{ maxHold: 60_000 }, "maxHold", "is not an option"],
    [{ atLeast: 1 }, "atLeast", "is not an option"],
    [{ protocol: "plain" }, "protocol", "is not an option"],
    [{ tll: 1 }, "tll", 'unknown option "tll"'],
    [{ ttl: 1 }, "ttl", "ttl is 1 ms"],
    [{ margin: 6_000 }, "margin", "margin is 6 s"],
    [5_000, undefined, "not a number"],
  ]) {
    await refused(() => redlock.election("foo", options), option, message);
  }
  const candidate = redlock.election("foo", { timeout: undefined, ttl: null });
  for (const body of [undefined, 500, { ttl: 500 }]) {
    await refused(() => candidate.run(body), undefined, "run(body) takes a function");
  }
  for (const body of [
    function* generator() {
      yield 1;
    },
    async function* generator() {
      yield 1;
    },
  ]) {
    await refused(() => candidate.run(body), "body", "body is a generator");
  }
});

// --- The process and its threads ---

test("a leader that only waits for its signal is not garbage", async () => {
  const name = fresh();
  const program = start(
    [server],
    fresh(),
    `
      // This is in a function, because a module's own frame keeps its values alive.
      await new Promise((leads) => {
        redlock.election(${JSON.stringify(name)}).run((signal) => {
          leads();
          return new Promise((resolve) => signal.addEventListener("abort", resolve));
        });
      });
      await (async () => {
        await redlock.lock("garbage").acquire();
      })();
      console.log("leads");
      setInterval(() => gc(), 10);
      process.stdin.on("end", () => process.exit()).resume();
    `,
    "--expose-gc",
  );
  await until(() => program.errors.includes("REDLOCK_LOCK_ABANDONED"));
  assert.equal(await exists(name), true);
  assert.ok(!program.errors.includes(name), "the warning is about another lock");
  program.child.stdin.end();
  await ends(program);
});
