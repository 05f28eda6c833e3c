import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Redlock } from "redlock-rs";
import { ends, start } from "./programs.mjs";
import { cluster, fresh, until } from "./servers.mjs";

const TTL = 2_000;
/** Longer than a test takes. */
const LIMIT = 15_000;

let clusters;

before(async () => {
  clusters = await Promise.all([1, 5].map(cluster));
});
after(() => Promise.all(clusters.flat().map((server) => server.stop())));

/** The sum of the counts that `ask` returns, over all servers. */
async function sum(servers, ask) {
  const counts = await Promise.all(servers.map(ask));
  return counts.reduce((sum, count) => sum + count);
}

const scripts = (servers) => sum(servers, (server) => server.scripts());

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

async function endsForGood(servers) {
  const program = start(
    servers,
    fresh(),
    `
      const options = { ttl: ${TTL} };
      const released = await redlock.lock("released", options).acquire();
      const lost = await redlock.lock("lost", options).acquire();
      const limited = await redlock.lock("limited", { ...options, maxHold: ${1.25 * TTL} }).acquire();
      console.log("held");
      process.stdin.once("data", async () => {
        await released.release();
        process.stdin.once("end", () => {
          console.log(lost.signal.reason.reason, limited.signal.reason.reason);
        });
      });
    `,
  );
  const names = ["released", "lost", "limited"];
  await until(() => program.output !== "");
  const acquired = await scripts(servers);
  await until(async () => (await scripts(servers)) >= acquired + names.length * servers.length);
  program.child.stdin.write("end them");
  await Promise.all(servers.map((server) => server.ask("SET", "lost", "someone else")));
  let [count, since] = [0, 0];
  await until(async () => {
    const now = await scripts(servers);
    if (now !== count) [count, since] = [now, performance.now()];
    return performance.now() - since > 0.75 * TTL;
  }, LIMIT);
  const keys = await sum(servers, (server) => server.ask("EXISTS", ...names));
  assert.equal(keys, servers.length, "all are gone but someone else's");
  assert.equal(program.child.exitCode, null);
  program.child.stdin.end();
  const { output } = await ends(program);
  assert.equal(output, "held\ntaken max_hold\n");
}

describe("renewal on one node and on five", { concurrency: true }, () => {
  test("goes on while the event loop does not run", () =>
    Promise.all(clusters.flatMap((servers) => BLOCKS.map((block) => isKept(servers, block)))));

  test("ends for good with a release, a loss and maxHold", async () => {
    // These servers are separate, because the test counts their requests.
    const own = await Promise.all([1, 5].map(cluster));
    try {
      await Promise.all(own.map(endsForGood));
    } finally {
      await Promise.all(own.flat().map((server) => server.stop()));
    }
  });
});
