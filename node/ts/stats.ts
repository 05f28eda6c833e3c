/** The metrics of the process. */

import { countByName as countNatively, stats as read, openMetrics as readText } from "#native";
import { expect } from "./validate.js";

/** Observations by size. */
export interface Histogram {
  /** How many there were. */
  readonly count: number;
  /** Their sum. */
  readonly sum: number;
  /** How many were at most `le`, in rising order. The last `le` is `Infinity`. */
  readonly buckets: readonly { readonly le: number; readonly count: number }[];
}

/** One value of a metric, with its labels. A histogram has a `histogram`, and each other metric a `value`. */
export interface Point {
  /** What tells it from the other values of the metric. */
  readonly labels: Readonly<Record<string, string>>;
  /** The value of a counter or a gauge. */
  readonly value?: number;
  /** The value of a histogram. */
  readonly histogram?: Histogram;
}

/** One metric. */
export interface Metric {
  /** A `counter` only grows while the process lives, a `gauge` goes up and down. */
  readonly kind: "counter" | "gauge" | "histogram";
  /** What it measures, in one sentence. */
  readonly about: string;
  /** The values. There are none before the first observation of a histogram, or before the first node. */
  readonly points: readonly Point[];
}

const WHOLE = {
  says: "a whole number, 0 for none",
  fits: (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0,
};

/**
 * Returns all metrics of this process by name: what happened since its start, and what is there now. All its clients and
 * threads are counted together.
 *
 * Sends nothing, takes some microseconds, and may be called at any time. Units are at the end of the names, and the same
 * in every language: durations are in seconds here. `redlock-rs/otel` exports them.
 *
 * @example
 * ```ts
 * const { redlock_held: held, redlock_waiting: waiting } = stats();
 * console.log(`${held?.points[0]?.value} held, ${waiting?.points[0]?.value} waiting`);
 * ```
 */
export function stats(): Record<string, Metric> {
  return Object.fromEntries(read().map(({ name, ...metric }) => [name, metric]));
}

/**
 * Returns the metrics of {@link stats} in the text format of OpenMetrics 1.0, which Prometheus and most agents scrape. A
 * web server sends it as `application/openmetrics-text; version=1.0.0; charset=utf-8`.
 *
 * Histograms have the series `<name>_bucket` with the label `le`, `<name>_sum` and `<name>_count`.
 *
 * @example
 * ```ts
 * console.log(openMetrics());
 * ```
 */
export function openMetrics(): string {
  return readText();
}

/**
 * Has acquisitions, holds, losses and margins counted by the name of the lock from now on: the first `most` names each
 * under a label `name`, and all others together. 0 counts all names together, which is the default.
 *
 * A name for each user or order would make as many series as there are users or orders, so this is for programs with few
 * names.
 *
 * @throws {@link LockInvalidArgument}: `most` is not a whole number.
 *
 * @example
 * ```ts
 * countByName(20);
 * ```
 */
export function countByName(most: number): void {
  expect("most", most, WHOLE);
  countNatively(most);
}
