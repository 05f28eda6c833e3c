// Locks of other Node libraries on ioredis, each in the configuration that its documentation calls for.
//
//   const session = PEERS["node-redlock"].open([url]);
//   const lock = session.lock("foo", 10_000, null);
//   if (await lock.acquire()) await lock.release();

import { Redis } from "ioredis";
import redisSemaphore from "redis-semaphore";
import NodeRedlock, { ExecutionError } from "redlock";
import { createLock, createRedlock, IoredisAdapter, LockAcquisitionError } from "redlock-universal";

const { Mutex, RedlockMutex } = redisSemaphore;

/** How often to try again, after about `every` ms each, to wait for `wait` ms. */
function retries(wait, every) {
  return Math.ceil(wait / every);
}

/** An acquire that keeps what it got for the release, and is false where `denial` is thrown. */
function lock(acquire, denial, release) {
  let held;
  return {
    async acquire() {
      try {
        held = await acquire();
        return true;
      } catch (error) {
        if (error instanceof denial) return false;
        throw error;
      }
    },
    release: () => release(held),
  };
}

function nodeRedlock(clients, name, ttl, wait) {
  const every = 200;
  // By default it gives up after 10 retries; -1 is for ever.
  const retryCount = wait === null ? -1 : retries(wait, every);
  const redlock = new NodeRedlock(clients, { retryCount, retryDelay: every, retryJitter: every });
  redlock.on("error", () => {
    // Without a listener, every denial ends the process.
  });
  return lock(
    () => redlock.acquire([name], ttl),
    ExecutionError,
    (held) => held.release(),
  );
}

function redlockUniversal(clients, name, ttl, wait) {
  const adapters = clients.map((client) => new IoredisAdapter(client));
  const retryDelay = 100;
  // By default it gives up after 3 retries, and has no word for ever.
  const retryAttempts = wait === null ? Number.MAX_SAFE_INTEGER : retries(wait, retryDelay);
  const options = { key: name, ttl, retryDelay, retryAttempts };
  const one = () => createLock({ adapter: adapters[0], ...options });
  const made = adapters.length === 1 ? one() : createRedlock({ adapters, ...options });
  return lock(
    () => made.acquire(),
    LockAcquisitionError,
    (held) => made.release(held),
  );
}

function semaphoreMutex(clients, name, ttl, wait) {
  const options = { lockTimeout: ttl, acquireTimeout: wait ?? Number.POSITIVE_INFINITY };
  // Within no time it would not even try once.
  if (wait === 0) Object.assign(options, { acquireTimeout: ttl, acquireAttemptsLimit: 1 });
  const mutex = clients.length === 1 ? new Mutex(clients[0], name, options) : new RedlockMutex(clients, name, options);
  return { acquire: () => mutex.tryAcquire(), release: () => mutex.release() };
}

/** ioredis takes the path of a unix socket, and not its URL. */
function connect(url) {
  return new Redis(url.replace(/^unix:\/\//, ""));
}

function peer(make) {
  return {
    nodes: null,
    open(urls) {
      const clients = urls.map(connect);
      return {
        lock: (name, ttl, wait) => make(clients, name, ttl, wait),
        close: () => Promise.all(clients.map((client) => client.quit())),
      };
    },
  };
}

/** All of them, by the names that the drivers of all languages share; each works on any number of nodes. */
export const PEERS = {
  "node-redlock": peer(nodeRedlock),
  "redlock-universal": peer(redlockUniversal),
  "redis-semaphore": peer(semaphoreMutex),
};
