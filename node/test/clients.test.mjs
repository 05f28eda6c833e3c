// Clients of other packages in the place of addresses. These have the shape that their packages document; the packages
// themselves are used in tests/frameworks.
import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { LockInvalidArgument, Redlock } from "redlock-rs";
import { read } from "../lib/clients.js";
import { failure, fresh, serve } from "./servers.mjs";

const SECRET = "S3CR3T@/:% ü";

const server = await serve({ requirepass: SECRET });

/** A client of ioredis. */
function ioredis(options) {
  const defaults = { host: "localhost", port: 6379, db: 0, username: null, password: null, sentinels: null };
  return {
    status: "wait",
    isCluster: false,
    options: { ...defaults, name: null, role: "master", keyPrefix: "", ...options },
  };
}

/** A `Cluster` of ioredis. */
function cluster(startupNodes, options) {
  return { isCluster: true, startupNodes, options: { natMap: undefined, useSRVRecords: false, ...options } };
}

/** A client of node-redis. */
function nodeRedis(options) {
  return { isOpen: false, options };
}

const provider = { type: "async-credentials-provider", credentials: async () => ({ username: "u", password: SECRET }) };

test("the address of a client", () => {
  for (const [client, url] of [
    [ioredis(), "redis://localhost:6379/0"],
    [ioredis({ host: "::1", port: 7, username: "u", password: "p@/", db: 3 }), "redis://u:p%40%2F@[::1]:7/3"],
    [ioredis({ tls: { servername: "n" } }), "rediss://localhost:6379/0?tls_server_name=n"],
    [ioredis({ path: "/a b", password: "p" }), "unix:///a%20b?db=0&pass=p"],
    [
      ioredis({ sentinels: [{ host: "a", port: 1 }, { host: "b" }], name: "m", password: "p", db: 2 }),
      "redis+sentinel://:p@a:1,b:26379/m/2",
    ],
    [
      ioredis({ sentinels: [{ host: "a" }], name: "m", tls: {}, sentinelTLS: {}, enableTLSForSentinelMode: true }),
      "rediss+sentinel://a:26379/m/0",
    ],
    [
      cluster([{ host: "a", port: 1 }, "redis://u:p@b:2", "c", 7001], { redisOptions: { password: "q", tls: {} } }),
      "rediss+cluster://:q@a:1,b:2,c:6379,localhost:7001/",
    ],
    [nodeRedis({}), "redis://localhost:6379/"],
    [nodeRedis({ url: "rediss://u:p%40@h:1/2" }), "rediss://u:p%40@h:1/2"],
    [
      nodeRedis({ socket: { path: "/s" }, database: 3, password: "p", credentialsProvider: provider }),
      "unix:///s?db=3&pass=p",
    ],
    [nodeRedis({ socket: { host: "h", tls: true, servername: "n" } }), "rediss://h:6379/?tls_server_name=n"],
    [
      { rootNodes: [{ url: "redis://a:1" }, { socket: { host: "b" } }], defaults: { password: "p" } },
      "redis+cluster://:p@a:1,b:6379/",
    ],
    [
      { name: "m", sentinelRootNodes: [{ host: "a", port: 1 }], nodeClientOptions: { password: "p", database: 2 } },
      "redis+sentinel://:p@a:1/m/2",
    ],
    // BullMQ's `connection`.
    [{ host: "h", port: 6380, password: "p", maxRetriesPerRequest: null }, "redis://:p@h:6380/"],
  ]) {
    assert.deepEqual(read([client], {}), { urls: [url], defaults: {} });
    new Redlock(client).close();
  }
});

test("what cannot be carried over is refused", async () => {
  const sentinels = { sentinels: [{ host: "a" }], name: "m" };
  for (const [client, named, advised] of [
    [ioredis({ tls: { rejectUnauthorized: false } }), "rejectUnauthorized", "tlsCa"],
    [ioredis({ tls: { ca: SECRET } }), "tls.ca", "tlsCa"],
    [ioredis({ tls: { cert: SECRET, key: SECRET } }), "tls.cert", "tlsCert and tlsKey"],
    [ioredis({ natMap: {} }), "natMap", "addresses"],
    [ioredis({ Connector: class {} }), "Connector", "addresses"],
    [ioredis({ ...sentinels, sentinelPassword: SECRET }), "sentinelPassword", "sentinel_password_file"],
    [ioredis({ ...sentinels, role: "slave" }), "role", "replica"],
    [cluster([{ host: "a" }], { natMap: {} }), "natMap", "redis+cluster://"],
    [cluster([{ host: "a" }, { host: "b", tls: {} }], {}), "tls", "all servers"],
    [nodeRedis({ socket: { tls: true, rejectUnauthorized: false } }), "rejectUnauthorized", "tlsCa"],
    [
      nodeRedis({ credentialsProvider: { type: "streaming-credentials-provider" } }),
      "credentialsProvider",
      "credentials",
    ],
    [{ getRandomNode: () => undefined, isOpen: true }, "the options", "made with"],
    [{ url: `redis://:${SECRET}` }, "url", "redis://"],
    [{ url: "redis://h?family=6" }, "url", "parameters"],
    [{ url: "redis://:S3CR3T%@h" }, "url", "%25"],
  ]) {
    for (const nodes of [client, ["memory://a", client]]) {
      const error = await failure(() => new Redlock(nodes));
      assert.ok(error instanceof LockInvalidArgument, error.stack);
      assert.ok(
        error.message.startsWith(`cannot carry over ${named}`) && error.message.includes(advised),
        error.message,
      );
      assert.equal(error.option, "nodes");
      assert.ok(!inspect(error, { depth: 9 }).includes("S3CR3T"));
    }
  }
});

test("options take the place of what cannot be carried over, and are stronger", () => {
  const client = ioredis({ tls: { ca: SECRET, servername: "n" }, keyPrefix: "theirs:" });
  const own = { tlsCa: "/ca", tlsServerName: "m", keyPrefix: "ours:" };
  assert.deepEqual(read([client], own), { urls: ["rediss://localhost:6379/0"], defaults: {} });
  const unchecked = nodeRedis({ socket: { tls: true, rejectUnauthorized: false } });
  assert.deepEqual(read([unchecked], own).urls, ["rediss://localhost:6379/"]);
  assert.deepEqual(read([nodeRedis({ credentialsProvider: provider })], { passwordFile: "/p" }).defaults, {});
});

test("the login, the database and the prefix are those of the client", async () => {
  for (const client of [
    ioredis({ path: server.socket, password: SECRET, db: 3, keyPrefix: "app:" }),
    nodeRedis({ socket: { path: server.socket }, password: SECRET, database: 3 }),
    { path: server.socket, password: SECRET, db: 3 },
  ]) {
    const redlock = new Redlock(client);
    const name = fresh();
    await redlock.lock(name).using(async () => {
      assert.match(await server.ask("INFO", "keyspace"), /db3:keys=/);
      const { key } = await redlock.inspect(name);
      assert.equal(key, client.options?.keyPrefix ? `app:${name}` : name);
    });
    redlock.close();
  }
});

test("several clients are several nodes", async () => {
  const redlock = new Redlock([ioredis({ path: server.socket, password: SECRET }), "memory://one", "memory://two"]);
  await redlock.lock(fresh()).using(async (_, { name }) => {
    const { nodes, state } = await redlock.inspect(name);
    assert.deepEqual([state, nodes.map(({ node }) => node.slice(0, 6))], ["held", ["unix:/", "memory", "memory"]]);
  });
  await assert.rejects(async () => new Redlock([ioredis({ keyPrefix: "a:" }), ioredis()]), /keyPrefix/);
});

test("a provider logs in", async () => {
  await server.ask("ACL", "SETUSER", "u", "on", `>${SECRET}`, "~*", "+@all");
  const theirs = nodeRedis({ socket: { path: server.socket }, credentialsProvider: provider });
  const redlock = new Redlock(theirs);
  await redlock.lock(fresh()).using(async () => assert.match(await server.ask("CLIENT", "LIST"), / user=u /));
  redlock.close();
  assert.equal(read([theirs, ioredis({ password: "p" })], {}).urls.length, 2);
  for (const other of ["memory://a", ioredis(), nodeRedis({ credentialsProvider: { ...provider } })]) {
    assert.throws(() => new Redlock([theirs, other]), /credentialsProvider/);
  }
});
