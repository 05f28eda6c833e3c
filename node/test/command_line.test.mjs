/** The program `redlock` of the npm package. `tests/cli` tests the program itself, by each of its launchers. */

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { fresh, serve } from "./servers.mjs";

const home = fileURLToPath(new URL("..", import.meta.url));
const manifest = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
const program = join(home, manifest.bin.redlock);
const server = await serve();
const job = ["run", "--node", server.url, fresh(), "--"];

/** Runs a program to its end. */
function ended(file, args) {
  return new Promise((resolve) => {
    execFile(file, args, (error, stdout, stderr) => resolve({ status: error?.code ?? 0, stdout, stderr }));
  });
}

test("the signal that opens Node's debugger goes to the command", async () => {
  const script = "trap 'exit 9' USR1; echo up; while :; do :; done";
  const child = spawn(program, [...job, "sh", "-c", script], { stdio: ["ignore", "pipe", "pipe"] });
  const said = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"]) child[name].on("data", (text) => (said[name] += text));
  await new Promise((resolve) => child.stdout.once("data", resolve));
  child.kill("SIGUSR1");
  const status = await new Promise((resolve) => child.once("close", resolve));
  assert.deepEqual({ status, ...said }, { status: 9, stdout: "up\n", stderr: "" });
});

test("a package without its compiled part, or with a broken one, says so with a status that is not the command's", async (t) => {
  const copy = mkdtempSync(join(tmpdir(), "redlock-bare-"));
  t.after(() => rmSync(copy, { recursive: true, force: true }));
  for (const name of ["lib", "package.json"]) cpSync(join(home, name), join(copy, name), { recursive: true });
  const fails = async (message) => {
    const { status, stdout, stderr } = await ended(join(copy, manifest.bin.redlock), [...job, "true"]);
    assert.deepEqual({ status, stdout }, { status: 70, stdout: "" });
    assert.match(stderr, message);
  };
  await fails(/^redlock: redlock-rs has no compiled part here [^\n]+\n$/);
  const compiled = readdirSync(home).filter((name) => name.endsWith(".node"));
  for (const name of compiled) writeFileSync(join(copy, name), "");
  await fails(/^redlock: redlock-rs cannot load its compiled part: .*redlock\..*\.node/);
});
