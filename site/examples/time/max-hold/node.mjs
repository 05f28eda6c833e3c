import { setTimeout } from "node:timers/promises";
import { LockLost, lock } from "redlock-rs";

try {
  await lock("import", { ttl: 1_000, maxHold: 1_000 }).using(async (signal) => {
    while (!signal.aborted) await setTimeout(100); // work that hangs
  });
} catch (error) {
  if (!(error instanceof LockLost)) throw error;
  console.log("lost:", error.reason);
}
