// A worker thread that holds one lock, waits for another, and counts under a third.
import { parentPort, workerData } from "node:worker_threads";
import { Redlock } from "redlock-rs";

const { url, mine, contended, counted } = workerData;
const redlock = new Redlock(url, { ttl: 600_000 });

const held = await redlock.lock(mine).acquire();
let fence = 0;
for (let turn = 0; turn < 5; turn += 1) {
  await redlock.lock(counted).using((_, lock) => {
    if (lock.fence <= fence) throw new Error("the fences do not increase");
    fence = lock.fence;
  });
}
const waiting = redlock.lock(contended).acquire();
parentPort.postMessage({ fence: held.fence });
await waiting;
