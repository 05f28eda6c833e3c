// What a program hears and exports holds no secret. In a program of its own, because connections of its clients break.
import assert from "node:assert/strict";
import { subscribe } from "node:diagnostics_channel";
import { test } from "node:test";
import { PrometheusExporter } from "@opentelemetry/exporter-prometheus";
import { MeterProvider } from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { countByName, LockForbidden, LockLost, Redlock, stats } from "redlock-rs";
import { instrument, uninstrument } from "redlock-rs/otel";
import { lose } from "redlock-rs/testing";
import { fresh, Server, until } from "./servers.mjs";

test("nothing that a program hears or exports has a password or a token", async (t) => {
  const [password, wrong] = ["S3CR3T/@:%&+right", "S3CR3T/@:%&+wrong"];
  const server = await Server.start({ requirepass: password, "maxmemory-policy": "allkeys-lru" });
  t.after(() => server.stop());
  const events = [];
  for (const topic of ["node", "lock", "process"]) subscribe(`redlock:${topic}`, (event) => events.push(event));
  const warned = [];
  const warn = ({ name, code, message, stack }) => warned.push({ name, code, message, stack });
  process.on("warning", warn);
  t.after(() => process.off("warning", warn));
  const [metrics, traces] = [new PrometheusExporter({ preventServerStart: true }), new InMemorySpanExporter()];
  instrument({
    meterProvider: new MeterProvider({ readers: [metrics] }),
    tracerProvider: new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(traces)] }),
  });
  t.after(uninstrument);
  countByName(10);
  t.after(() => countByName(0));

  const as = (password) => new Redlock(`${server.url}?pass=${encodeURIComponent(password)}`);
  await assert.rejects(as(wrong).lock(fresh()).acquire({ timeout: 0 }), LockForbidden);
  const client = as(password);
  const tokens = [];
  const acquired = async () => {
    const lock = await client.lock(fresh()).acquire();
    const value = await server.ask("GET", lock.name);
    tokens.push(value.slice(0, 32));
    return lock;
  };
  const released = await acquired();
  assert.equal(await client.lock(released.name).tryAcquire(), false);
  await released.release();
  lose(await acquired(), "taken");
  const stolen = await acquired();
  await server.ask("SET", stolen.name, "another library's token");
  await assert.rejects(stolen.release(), LockLost);
  const codes = () => events.map(({ code }) => code);
  const expected = ["node_unreachable", "node_evicts", "lock_lost"];
  await until(() => expected.every((code) => codes().includes(code)) && warned.length > 0);

  const spans = traces
    .getFinishedSpans()
    .map(({ name, attributes, status, events }) => [name, attributes, status, events]);
  assert.equal(spans.filter(([name]) => name === "redlock.hold").length, 3);
  const { resourceMetrics } = await metrics.collect();
  const everything = {
    events,
    warned,
    stats: stats(),
    spans,
    metrics: resourceMetrics.scopeMetrics,
  };
  for (const token of tokens) assert.match(token, /^[0-9a-f]{32}$/);
  // Passwords begin the same way raw and percent-encoded. An inspection tells owners apart by half of their tokens.
  const secrets = ["S3CR3T", ...tokens.map((token) => token.slice(0, 16))];
  for (const [what, told] of Object.entries(everything)) {
    const text = JSON.stringify(told);
    for (const secret of secrets) assert.ok(!text.includes(secret), `${what}: ${text}`);
  }
  for (const what of ["events", "warned", "stats", "metrics"]) {
    assert.ok(JSON.stringify(everything[what]).includes(server.socket), what);
  }
});
