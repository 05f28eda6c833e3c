// Programs that use the package, as separate processes.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** A program that has not ended by then never will. */
const LIMIT = 30_000;

/** Longest time between a program's last line and its end. A program that anything keeps alive exceeds it. */
const AT_ONCE = 2_000;

/** Starts a program. */
export function run(body, ...flags) {
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  const child = spawn(process.execPath, [...flags, "--input-type=module", "-e", body], {
    cwd,
    timeout: LIMIT,
    killSignal: "SIGKILL",
  });
  const program = { child, output: "", errors: "", heard: 0 };
  child.stdout.setEncoding("utf8").on("data", (text) => {
    program.output += text;
    program.heard = performance.now();
  });
  child.stderr.setEncoding("utf8").on("data", (text) => {
    program.errors += text;
  });
  const ended = ([code, signal]) => ({ code, signal, after: performance.now() - program.heard });
  program.ended = once(child, "close").then(ended);
  return program;
}

/** Starts a program that has `redlock` and `lock`, a lock with a long ttl. */
export function start(servers, name, body, ...flags) {
  const head = `
    import { Redlock } from "redlock-rs";
    const redlock = new Redlock(${JSON.stringify(servers.map(({ url }) => url))}, { ttl: 600_000 });
    const lock = redlock.lock(${JSON.stringify(name)});
  `;
  return run(head + body, ...flags);
}

/** A program that ends by itself, at once. */
export async function ends(program, code = 0) {
  const ended = await program.ended;
  assert.equal(ended.code, code, program.errors);
  assert.ok(ended.after < AT_ONCE, `ended after ${ended.after} ms`);
  return program;
}
