import assert = require("node:assert/strict");
import redlock = require("redlock-rs");
import otel = require("redlock-rs/otel");

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
  const held: redlock.Point | undefined = redlock.stats().redlock_held?.points[0];
  assert.equal(held?.value, 0);
  otel.instrument({ tracerProvider: undefined });
  otel.uninstrument();
  assert.equal((await import("redlock-rs/otel")).instrument, otel.instrument);
  // @ts-expect-error: not a name
  assert.throws(() => client.lock(17), redlock.LockInvalidArgument);
  client.close();
  console.log("as expected");
}

void main();
