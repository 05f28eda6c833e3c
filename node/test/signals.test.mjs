import assert from "node:assert/strict";
import { test } from "node:test";
import { Redlock } from "redlock-rs";
import { start } from "./programs.mjs";
import { fresh, serve, until } from "./servers.mjs";

/** The slack for a busy machine. */
const SLACK_MS = 1_000;

/** How soon a process that is asked to end has released what it holds. */
const END_MS = 1_000;

const clusters = await Promise.all([1, 5].map((count) => Promise.all(Array.from({ length: count }, () => serve()))));

/** Sends SIGTERM to a program that holds one lock and waits for another; returns how it ended. */
async function terminated(servers, handler) {
  const [name, contended] = [fresh(), fresh()];
  const holder = await new Redlock(servers.map(({ url }) => url)).lock(contended).acquire();
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
  const left = async (key) =>
    (await Promise.all(servers.map((server) => server.ask("PTTL", key)))).filter((ttl) => ttl >= 0);
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
