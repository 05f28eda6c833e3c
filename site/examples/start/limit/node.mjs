import { LockTimeout, lock } from "redlock-rs";

const somebody = await lock("report").acquire(); // somebody has it
try {
  await lock("report", { timeout: 500 }).using(async () => {
    console.log("it is mine"); // the timeout is in milliseconds
  });
} catch (error) {
  if (!(error instanceof LockTimeout)) throw error;
  console.log("others held it until the time limit");
} finally {
  await somebody.release();
}
