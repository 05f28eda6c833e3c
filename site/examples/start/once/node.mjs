import { lock } from "redlock-rs";

const nightly = lock("cron:nightly");
if (await nightly.tryAcquire()) {
  console.log("running it");
  await nightly.release();
} else {
  console.log("another process is running it");
}
