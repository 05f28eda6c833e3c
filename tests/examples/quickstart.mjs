import { LockTimeout, lock } from "redlock-rs";

// Wait for the lock, work, release it whatever happens. The signal is aborted as soon as the lock is lost.
await lock("invoice:17").using(async (signal, { remaining, fence }) => {
  if (!signal.aborted) console.log(`held for ${remaining} ms more, fence ${fence}`);
});

// Or release it yourself. In Node 24, `await using report = …` does.
const report = await lock("report", { ttl: 30_000 }).acquire();
try {
  console.log(3, "lines");
} finally {
  await report.release();
}

// Or try once, or wait for no longer than this.
const nightly = lock("cron:nightly");
if (await nightly.tryAcquire()) {
  try {
    await lock("cron:nightly").acquire({ timeout: 50 });
  } catch (error) {
    if (!(error instanceof LockTimeout)) throw error;
    console.log(error.message);
  } finally {
    await nightly.release();
  }
}
