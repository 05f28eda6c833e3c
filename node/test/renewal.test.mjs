import assert from "node:assert/strict";
import { test } from "node:test";
import { Redlock } from "redlock-rs";
import { ends, start } from "./programs.mjs";
import { fresh, serve, until } from "./servers.mjs";

const TTL = 2_000;
/** Longer than a test takes. */
const LIMIT = 15_000;

const clusters = await Promise.all([1, 5].map((count) => Promise.all(Array.from({ length: count }, () => serve()))));

const BLOCKS = [
  "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, end - performance.now())",
  "while (performance.now() < end)",
];

async function isKept(servers, block) {
  const name = fresh();
  const program = start(
    servers,
    name,
    `
      const kept = await redlock.lock(${JSON.stringify(name)}, { ttl: ${TTL} }).acquire();
      console.log("held");
      const end = performance.now() + 1.5 * ${TTL};
      ${block};
      kept.check();
      console.log("held");
      process.stdin.once("data", () => kept.release());
    `,
  );
  const urls = servers.map(({ url }) => url);
  const other = new Redlock(urls, { nodeTimeout: 5_000 }).lock(name);
  await until(() => program.output !== "");
  await until(async () => {
    assert.equal(await other.tryAcquire(), false, block);
    return program.output === "held\nheld\n" || program.child.exitCode !== null;
  }, LIMIT);
  program.child.stdin.end("release");
  await ends(program);
  assert.equal(await other.tryAcquire(), true);
}

test("a lock is renewed while the event loop does not run, on one node and on five", () =>
  Promise.all(clusters.flatMap((servers) => BLOCKS.map((block) => isKept(servers, block)))));
