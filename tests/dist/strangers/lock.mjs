import { LockTimeout, Redlock } from "redlock-rs";

const redlock = new Redlock([process.argv[2]]);
await redlock.lock("stranger").using(async (_signal, { fence }) => {
  const second = await redlock.lock("stranger").acquire({ timeout: 50 }).then(
    () => "held twice",
    (error) => error,
  );
  if (!(second instanceof LockTimeout)) throw new Error(String(second));
  console.log(String(fence));
});
