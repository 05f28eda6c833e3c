/** The log of the engine, on channels of `node:diagnostics_channel`. */

import { type Channel, channel } from "node:diagnostics_channel";
import { type NativeEvent, takeEvents } from "#native";

/**
 * An event: what happened to a node, to a lock or to this process, and what redlock does now.
 *
 * Subscribers of the channels `redlock:node`, `redlock:lock` and `redlock:process` of `node:diagnostics_channel` get
 * them. Each thread has its own channels, and gets the events of the whole process from its first call on a lock on.
 * Events do not keep the process alive. Those that came before its end reach the subscribers in its `exit` event.
 *
 * A subscriber runs on the event loop, in no context of `AsyncLocalStorage`. While it blocks, locks are renewed in the
 * background. If it throws, Node reports an uncaught exception, and the other events still come.
 *
 * An event that needs a person, such as a node that may evict locks, is also a warning of the process
 * (`process.emitWarning`), of the type `RedlockWarning` and with the code `REDLOCK_` and the event's code in capitals:
 * once for each code and node or lock. `node --disable-warning=REDLOCK_NODE_EVICTS` turns one off.
 *
 * @example
 * ```ts
 * import { subscribe } from "node:diagnostics_channel";
 * import type { RedlockEvent } from "redlock-rs";
 *
 * subscribe("redlock:node", (message) => {
 *   const { level, code, message: text, fields } = message as RedlockEvent;
 *   logger[level]({ code, ...fields }, text);
 * });
 * ```
 */
export interface RedlockEvent {
  /** The stable name: `node_silent`, `lock_lost`, and so on. */
  readonly code: string;
  /** The topic. The channel is `redlock:` and this. */
  readonly topic: "node" | "lock" | "process";
  /** How serious it is. */
  readonly level: "debug" | "info" | "warn" | "error";
  /** When it happened, in milliseconds since 1970. */
  readonly at: number;
  /** What happened, and what redlock does now. */
  readonly message: string;
  /** The facts by name, such as `node` or `name`. None contains a password or a token. */
  readonly fields: Readonly<Record<string, string>>;
}

/** Gives a warning with a text and a code. */
type Warn = (text: string, code: string) => void;

const TYPE = "RedlockWarning";

const CHANNELS: Readonly<Record<RedlockEvent["topic"], Channel>> = {
  node: channel("redlock:node"),
  lock: channel("redlock:lock"),
  process: channel("redlock:process"),
};

/** The events that were taken and not published yet: a subscriber may end the process while others wait. */
const taken: NativeEvent[] = [];

/**
 * Publishes the events that came.
 *
 * @internal
 */
export function publishEvents(queue: number, warn: Warn = emitWarning): void {
  const topics = Object.keys(CHANNELS).filter((topic) => CHANNELS[topic as RedlockEvent["topic"]].hasSubscribers);
  const { events, lost } = takeEvents(queue, topics);
  if (lost > 0) publishLost(lost);
  for (const event of events) taken.push(event);
  for (let event = taken.shift(); event !== undefined; event = taken.shift()) publish(event, warn);
}

function publish({ warns, ...event }: NativeEvent, warn: Warn): void {
  const to = CHANNELS[event.topic];
  if (to.hasSubscribers) to.publish(event satisfies RedlockEvent);
  if (!warns) return;
  const facts = Object.entries(event.fields).map(([field, value]) => `${field}: ${value}`);
  const text = facts.length === 0 ? event.message : `${event.message} (${facts.join(", ")})`;
  try {
    warn(text, `REDLOCK_${event.code.toUpperCase()}`);
  } catch (error) {
    // The program has replaced what warns. As with a subscriber that throws, the other events still come.
    process.nextTick(() => {
      throw error;
    });
  }
}

/** Says that events were lost, in a burst or while the event loop was busy. */
function publishLost(lost: number): void {
  if (!CHANNELS.process.hasSubscribers) return;
  const event: RedlockEvent = {
    code: "events_dropped",
    topic: "process",
    level: "warn",
    at: Date.now(),
    message: "the event loop was busy, and events were dropped",
    fields: { count: String(lost) },
  };
  CHANNELS.process.publish(event);
}

function emitWarning(text: string, code: string): void {
  process.emitWarning(text, { type: TYPE, code });
}

/**
 * Warns in this turn. Node does so in a later one, and in the `exit` event there is none.
 *
 * @internal
 */
export function warnNow(text: string, code: string): void {
  process.emit("warning", Object.assign(new Error(text), { name: TYPE, code }));
}
