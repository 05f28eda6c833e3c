// Performs the suite's requests with the Node package: JSON lines in, JSON lines out, without judging.
// The protocol is described in tests/README.md.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

// The driver imports the package by its name from inside of it, so its own `exports` choose the file.
const require = createRequire(new URL("../../../node/package.json", import.meta.url));
const library = require("redlock-rs");
const { MemoryServer, lose } = require("redlock-rs/testing");
const { Redlock, RedlockError, LockInvalidArgument, LockNotHeld } = library;

const clients = new Map();
const locks = new Map();
const servers = new Map();
const cancels = new Map();
let handles = 0;

const ops = {
  client({ nodes, options }) {
    const given = camelCase(options);
    // The path of a file, from which a provider takes the login.
    if (given.credentials !== undefined) given.credentials = login.bind(undefined, given.credentials);
    return keep(clients, new Redlock(nodes, given));
  },
  lock({ client, name, text, options }) {
    return keep(locks, clients.get(client).lock(text ?? Buffer.from(name, "hex"), camelCase(options)));
  },
  async acquire({ id, lock, timeout_ms }) {
    const abort = new AbortController();
    cancels.set(id, abort);
    try {
      await locks.get(lock).acquire({ timeout: timeout_ms, signal: abort.signal });
    } catch (error) {
      if (error === abort.signal.reason) return { cancelled: true };
      throw error;
    }
    return { acquired: true, ...state(locks.get(lock)) };
  },
  async try_acquire({ lock }) {
    return { acquired: await locks.get(lock).tryAcquire(), ...state(locks.get(lock)) };
  },
  async is_locked({ lock }) {
    return { is_locked: await locks.get(lock).isLocked() };
  },
  async extend({ lock, ttl_ms }) {
    await locks.get(lock).extend(ttl_ms);
    return state(locks.get(lock));
  },
  async release({ lock }) {
    await locks.get(lock).release();
    return {};
  },
  check({ lock }) {
    locks.get(lock).check();
    return {};
  },
  state({ lock }) {
    return state(locks.get(lock));
  },
  async wait_lost({ lock, limit_ms }) {
    const { signal } = locks.get(lock);
    await new Promise((resolve) => {
      const limit = setTimeout(resolve, signal.aborted ? 0 : limit_ms);
      signal.addEventListener("abort", () => resolve(clearTimeout(limit)), { once: true });
    });
    return { lost: signal.aborted ? described(signal.reason) : null, told_ns: now() };
  },
  async inspect({ client, name }) {
    const views = await clients.get(client).inspect(Buffer.from(name, "hex"));
    return { nodes: views.map(viewed) };
  },
  async diagnose({ client }) {
    return { nodes: await clients.get(client).diagnose() };
  },
  cancel({ call }) {
    cancels.get(call).abort();
    return {};
  },
  server() {
    const server = new MemoryServer();
    return { ...keep(servers, server), url: server.url };
  },
  at_server({ server, action, name, ttl_ms, by_ms, available }) {
    const at = servers.get(server);
    const actions = {
      hold: () => at.hold(Buffer.from(name, "hex"), ttl_ms),
      release: () => at.release(Buffer.from(name, "hex")),
      wipe: () => at.wipe(),
      advance: () => at.advance(by_ms),
      set_available: () => {
        at.available = available;
      },
    };
    actions[action]();
    return {};
  },
  lose({ lock, reason }) {
    lose(locks.get(lock), reason);
    return {};
  },
  close({ client }) {
    clients.get(client).close();
    return {};
  },
};

function keep(kept, value) {
  handles += 1;
  kept.set(handles, value);
  return { handle: handles };
}

/** CLOCK_MONOTONIC, the clock that all processes of a machine share. */
function now() {
  return Number(process.hrtime.bigint());
}

function state(lock) {
  // The clock is read first, so that `remaining` never counts from a later instant than the library means.
  const read_ns = now();
  const { remaining, held } = lock;
  let fence = null;
  try {
    fence = lock.fence;
  } catch (error) {
    if (!(error instanceof LockNotHeld || error instanceof LockInvalidArgument)) throw error;
  }
  return { read_ns, held, remaining_ms: remaining, fence };
}

/** Options as Node has them. */
function camelCase(options) {
  const name = (key) => key.replace(/_ms$/, "").replace(/_(.)/g, (_, letter) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(options).map(([key, value]) => [name(key), own(value)]));
}

/** The login in a file, or the failure that it asks for. */
async function login(path) {
  const { username, password, ms, error } = JSON.parse(readFileSync(path, "utf8"));
  if (error !== undefined) throw new Error(error);
  return { username, password, expiresIn: ms };
}

/** Converts a value that JSON cannot express; returns others unchanged. */
function own(value) {
  if (value?.Number !== undefined) return Number(value.Number);
  return value?.BigInt === undefined ? value : BigInt(value.BigInt);
}

function described({ code, lockName = null, reason = null, option = null, nodes, message, retryable }) {
  const votes = nodes.map(({ node, answer }) => [node, answer]);
  return { code, name: lockName, reason, option, nodes: votes, message, retryable };
}

function viewed({ node, key, state, label, fence, ttlLeft }) {
  return { node, key, state, label: label ?? null, fence: fence ?? null, ttl_left_ms: ttlLeft ?? null };
}

async function perform(request) {
  const op = Object.hasOwn(ops, request.op) ? ops[request.op] : undefined;
  if (op === undefined) return { error: { code: "driver", message: `no such op: ${request.op}` } };
  try {
    return { ok: await op(request) };
  } catch (error) {
    if (error instanceof RedlockError) return { error: described(error) };
    console.error(error);
    return { error: { code: "driver", message: String(error) } };
  }
}

async function answer(request) {
  const invoke_ns = now();
  const result = await perform(request);
  say({ id: request.id, ...result, invoke_ns, return_ns: now() });
}

function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

const { face } = parseArgs({ options: { face: { type: "string" } } }).values;
if (face !== "node") throw new Error("usage: node_driver.mjs --face node");
const codes = Object.values(library)
  .filter((member) => member?.prototype instanceof RedlockError)
  .map((member) => new member("", {}).code);
say({ hello: { language: "node", face, protocol: 1, codes } });
// At the end of input, only open calls keep the process alive.
for await (const line of createInterface({ input: process.stdin })) void answer(JSON.parse(line));
