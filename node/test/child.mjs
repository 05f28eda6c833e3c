// A process that tries one lock, and acquires it, once or repeatedly, on request.
import { Redlock } from "redlock-rs";

const [url, name] = process.argv.slice(2);
const lock = new Redlock(url, { ttl: 600_000 }).lock(name);

// The clock that all processes of a machine share.
const now = () => Number(process.hrtime.bigint() / 1_000n);

process.on("message", async (turns) => {
  for (let turn = 1; turn < turns; turn += 1) {
    await lock.using(async (_, { fence }) => {
      const entered = now();
      await new Promise((resolve) => setTimeout(resolve, 2));
      process.send({ fence, entered, left: now() });
    });
  }
  await lock.acquire();
  process.send({ fence: lock.fence });
});
process.send({ acquired: await lock.tryAcquire() });
