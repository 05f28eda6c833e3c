import assert from "node:assert/strict";
import { fork } from "node:child_process";
import cluster from "node:cluster";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Redlock } from "redlock-rs";
import { fresh, Server, until } from "./servers.mjs";

const TURNS = 5;

const program = fileURLToPath(new URL("child.mjs", import.meta.url));

let server;
let redlock;

before(async () => {
  server = await Server.start();
  redlock = new Redlock(server.url);
});
after(() => server.stop());

test("a forked process is another holder", async () => {
  const name = fresh();
  const lock = await redlock.lock(name).acquire();
  const child = fork(program, [server.url, name]);
  const [denied] = await once(child, "message");
  assert.deepEqual(denied, { acquired: false });
  lock.check();
  const { fence } = lock;
  await lock.release();
  child.send(1);
  const [acquired] = await once(child, "message");
  assert.ok(acquired.fence > fence);
  assert.equal(await lock.tryAcquire(), false);
  // It ends with its lock held, because nothing keeps it alive any more.
  child.disconnect();
  assert.deepEqual(await once(child, "exit"), [0, null]);
  assert.equal(await lock.tryAcquire(), true);
  await lock.release();
});

test("the workers of a cluster exclude each other", async () => {
  const name = fresh();
  const held = await redlock.lock(name).acquire();
  cluster.setupPrimary({ exec: program, args: [server.url, name] });
  const turns = [];
  let denied = 0;
  const ends = [1, 2, 3].map(async () => {
    const worker = cluster.fork();
    worker.on("message", (said) => {
      if ("left" in said) turns.push(said);
      // It is done and still holds the lock: it ends, and others can acquire it.
      else if ("fence" in said) worker.disconnect();
      else {
        denied += said.acquired ? 0 : 1;
        worker.send(TURNS);
      }
    });
    return once(worker, "exit");
  });
  await until(() => denied === ends.length);
  await held.release();
  for (const end of ends) assert.deepEqual(await end, [0, null]);
  turns.sort((one, two) => one.fence - two.fence);
  assert.equal(turns.length, 3 * (TURNS - 1));
  for (const [place, turn] of turns.slice(1).entries()) {
    assert.ok(turns[place].fence < turn.fence && turns[place].left <= turn.entered, JSON.stringify(turns));
  }
});
