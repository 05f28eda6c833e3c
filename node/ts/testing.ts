/**
 * What tests of a program with locks need, without a server.
 *
 * @example
 * ```ts
 * import { configure } from "redlock-rs";
 * import { MemoryServer } from "redlock-rs/testing";
 *
 * let server: MemoryServer;
 * beforeEach(() => {
 *   server = new MemoryServer();
 *   configure(server.url);
 * });
 *
 * test("another server runs it", async () => {
 *   server.hold("cron:nightly");
 *   assert.equal(await nightly(), undefined);
 * });
 * ```
 *
 * @packageDocumentation
 */

import { lose as loseNatively, TestServer } from "#native";
import { queue } from "./calls.js";
import { type LostReason, unwrap } from "./errors.js";
import { Lock } from "./lock.js";
import { BOOLEAN, checkedName, expect, MILLISECONDS, TEXT } from "./validate.js";

/**
 * A server inside this process that does what a test says. Each is new and empty, so tests do not meet.
 *
 * Its keys stay while it or a client of it exists. Names here are whole keys, with the client's `keyPrefix` if it has
 * one.
 */
export class MemoryServer {
  readonly #server = TestServer.start();

  /** The address for a client: `memory://` and a name that no other server of this process has. */
  get url(): string {
    return this.#server.url();
  }

  /**
   * Whether the server does what it is asked; true at first. While it is false, calls fail with `LockUnavailable`, and
   * held locks are lost at the end of their ttl.
   */
  get available(): boolean {
    return this.#server.isAvailable();
  }

  set available(available: boolean) {
    expect("available", available, BOOLEAN);
    this.#server.setAvailable(available);
  }

  /**
   * Has somebody else hold the lock `name` from now on, whoever held it before, until `release` or for `ttl`. A lock of
   * this program that held the name finds out at its next renewal, and is lost with the reason `taken`.
   *
   * @param ttl - in milliseconds; default a day.
   * @throws {@link LockInvalidArgument}: a wrong name or ttl.
   */
  hold(name: string | Uint8Array, ttl?: number): void {
    if (ttl !== undefined) expect("ttl", ttl, MILLISECONDS);
    unwrap(this.#server.hold(checkedName(name), ttl));
  }

  /**
   * Has somebody else release the lock `name`; nothing, if they do not hold it.
   *
   * @throws {@link LockInvalidArgument}: a wrong name.
   */
  release(name: string | Uint8Array): void {
    unwrap(this.#server.release(checkedName(name)));
  }

  /**
   * Deletes every key, as a server does that restarts without persistence or is flushed. Held locks find out at their
   * next renewal: they are put back, or lost with the reason `deleted`.
   */
  wipe(): void {
    this.#server.wipe();
  }

  /**
   * Moves the server's clock forward, at most a century in all. Keys whose time comes expire. The clock of this program
   * stays, so its held locks find out at their next renewal.
   *
   * @param by - in milliseconds.
   * @throws {@link LockInvalidArgument}: a wrong duration.
   */
  advance(by: number): void {
    expect("by", by, MILLISECONDS);
    unwrap(this.#server.advance(by));
  }
}

/**
 * Has `lock` lose what it holds now, as if the background had found out. Its signal is aborted when this returns. The
 * keys are deleted in the background. A lock that is lost already stays as it is.
 *
 * @throws {@link LockNotHeld}: before an acquire and after a release.
 * @throws {@link LockInvalidArgument}: an unknown reason.
 */
export function lose(lock: Lock, reason: LostReason = "expired"): void {
  expect("lock", lock, { says: "a lock of redlock-rs", fits: (value) => value instanceof Lock });
  expect("reason", reason, TEXT);
  unwrap(loseNatively(queue(), Lock.numberOf(lock), reason));
  Lock.tell(lock);
}
