import assert = require("node:assert/strict");
import redlock = require("redlock-rs");

async function main(): Promise<void> {
  const client: redlock.Redlock = new redlock.Redlock("memory://consumer");
  const lock: redlock.Lock = client.lock("foo", { ttl: 1_000 });
  await lock.using(async (signal) => {
    assert.equal(signal.aborted, false);
    const error = await client
      .lock("foo")
      .acquire({ timeout: 0 })
      .then(
        () => undefined,
        (error: unknown) => error,
      );
    assert.ok(error instanceof redlock.LockTimeout);
    const answers: readonly redlock.NodeAnswer[] = error.nodes;
    assert.equal(answers[0]?.node, "memory://consumer");
  });
  // The same classes as through import.
  const esm = await import("redlock-rs");
  assert.equal(esm.Redlock, redlock.Redlock);
  assert.ok(lock instanceof esm.Lock);
  // @ts-expect-error: not a name
  assert.throws(() => client.lock(17), redlock.LockInvalidArgument);
  client.close();
  console.log("as expected");
}

void main();
