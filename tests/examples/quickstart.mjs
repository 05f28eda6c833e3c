import { LockTimeout, lock } from "redlock-rs";

// Wait for the lock, work, release it. The nodes come from REDLOCK_URLS, or it is redis://127.0.0.1:6379.
const invoice = await lock("invoice:17").acquire();
console.log(`held for ${invoice.remaining} ms more, fence ${invoice.fence}`);
await invoice.release();

// Or released whatever happens inside; the signal is aborted as soon as the lock is lost.
const lines = await lock("report", { ttl: 30_000 }).using(async (signal) => (signal.aborted ? 0 : 3));
console.log(lines, "lines");

// Or try once, or wait for no longer than this.
const nightly = lock("cron:nightly");
if (await nightly.tryAcquire()) {
  try {
    await lock("cron:nightly").acquire({ timeout: 50 });
  } catch (error) {
    if (!(error instanceof LockTimeout)) throw error;
    console.log(error.message);
  }
  await nightly.release();
}
