// What the package offers to the tests of programs: `redlock-rs/testing`.

import assert from "node:assert/strict";
import { test } from "node:test";
import { LockInvalidArgument, LockNotHeld, lock, Redlock } from "redlock-rs";
import { lose, MemoryServer } from "redlock-rs/testing";

test("wrong arguments", async () => {
  const server = new MemoryServer();
  const held = await new Redlock(server.url).lock("held").acquire();
  const wrong = [
    [() => server.hold(1), /string or a Uint8Array/],
    [() => server.hold(""), /empty/],
    [() => server.hold("a", "1"), /ttl must be a number of milliseconds/],
    [() => server.hold("a", -1), /ttl is -1 ms/],
    [() => server.release("redlock:fence:a"), /reserved/],
    [() => server.advance("1"), /by must be a number/],
    [() => server.advance(Number.NaN), /by/],
    [
      () => {
        server.available = 1;
      },
      /available must be true or false/,
    ],
    [() => lose(held, "broken"), /reason must be one of expired, taken/],
    [() => lose({}), /a lock of redlock-rs/],
  ];
  for (const [call, message] of wrong) {
    assert.throws(call, (error) => error instanceof LockInvalidArgument && message.test(error.message), String(call));
  }
  assert.equal(held.held, true);
  await held.release();
  assert.throws(() => lose(held), LockNotHeld);
  assert.throws(() => lose(lock("never acquired")), LockNotHeld);
});
