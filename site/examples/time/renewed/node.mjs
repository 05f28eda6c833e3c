import { setTimeout } from "node:timers/promises";
import { lock } from "redlock-rs";

// After a crash, others wait for 1 s at most.
await lock("import", { ttl: 1_000 }).using(async (_signal, held) => {
  await setTimeout(2_000); // longer than the ttl
  console.log(held.held ? "renewed" : "lost");
});
