import { lock } from "redlock-rs";

const nightly = lock("cron:nightly");
if (await nightly.tryAcquire()) {
  try {
    console.log("running it");
  } finally {
    await nightly.release();
  }
} else {
  console.log("another process is running it");
}
