// A program that does nothing but take one lock, as short as its library lets it be. Says in JSON when it got how far.
//
//   node cold.mjs node-redlock redis://127.0.0.1:6379

import { createRequire } from "node:module";

const nowNs = () => Number(process.hrtime.bigint());
const begunNs = nowNs();
const [subject, url] = process.argv.slice(2);
const name = "bench:cold";
const require = createRequire(import.meta.url);
const peer = createRequire(new URL("../peers/node/", import.meta.url));

/** How each library is loaded, and how it makes and acquires a lock; the result is released. */
const programs = {
  node: () => {
    const { Redlock } = require("../../node");
    return () => new Redlock(url, { ttl: 10_000 }).lock(name).acquire();
  },
  "node-redlock": () => {
    const { Redis } = peer("ioredis");
    const { default: Redlock } = peer("redlock");
    return () => new Redlock([new Redis(url)]).acquire([name], 10_000);
  },
  "redlock-universal": () => {
    const { Redis } = peer("ioredis");
    const { createLock, IoredisAdapter } = peer("redlock-universal");
    return async () => {
      const lock = createLock({ adapter: new IoredisAdapter(new Redis(url)), key: name, ttl: 10_000 });
      const held = await lock.acquire();
      return { release: () => lock.release(held) };
    };
  },
  "redis-semaphore": () => {
    const { Redis } = peer("ioredis");
    const { Mutex } = peer("redis-semaphore");
    return async () => {
      const mutex = new Mutex(new Redis(url), name, { lockTimeout: 10_000 });
      await mutex.acquire();
      return mutex;
    };
  },
};

const acquire = programs[subject]();
const importedNs = nowNs();
const held = await acquire();
const { user, system } = process.cpuUsage();
const said = { begun_ns: begunNs, imported_ns: importedNs, acquired_ns: nowNs(), cpu_ns: (user + system) * 1000 };
console.log(JSON.stringify(said));
await held.release();
process.exit(0);
