import { type Lock, type LockOptions, Redlock } from "redlock-rs";

const options: LockOptions = { ttl: 5_000 };
const lock: Lock = new Redlock([process.argv[2] ?? ""], options).lock("stranger");
await lock.acquire();
const fence: number = lock.fence;
await lock.release();
console.log(String(fence));
