// Does with a peer's lock what a test asks for: JSON lines in, JSON lines out, as README.md describes them.

import { createInterface } from "node:readline";

import { PEERS } from "./peers.mjs";

let session;
let lock;

const ops = {
  open({ peer, urls }) {
    session = PEERS[peer].open(urls);
    return {};
  },
  async acquire({ name, ttl_ms, wait_ms }) {
    lock = session.lock(name, ttl_ms, wait_ms);
    return { acquired: await lock.acquire() };
  },
  async release() {
    await lock.release();
    return {};
  },
};

async function perform({ op, ...of }) {
  try {
    if (!Object.hasOwn(ops, op)) throw new Error(`no such op: ${op}`);
    return await ops[op](of);
  } catch (error) {
    return { error: `${error.name}: ${error.message}` };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, ...request } = JSON.parse(line);
  console.log(JSON.stringify({ id, ...(await perform(request)) }));
}
await session?.close();
