import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const home = fileURLToPath(new URL("..", import.meta.url));
const require = createRequire(import.meta.url);
const cjs = require("redlock-rs");
const node = promisify(execFile).bind(undefined, process.execPath);

test("ESM and CommonJS have one set of classes", async () => {
  const esm = await import("redlock-rs");
  const names = Object.keys(cjs).sort();
  assert.deepEqual(
    Object.keys(esm)
      .filter((name) => names.includes(name))
      .sort(),
    names,
  );
  assert.ok(names.includes("Redlock") && names.includes("RedlockError") && names.includes("lock"));
  for (const name of names) assert.equal(esm[name], cjs[name], name);
  assert.ok(new esm.Redlock("memory://a") instanceof cjs.Redlock);
  assert.throws(() => new esm.Redlock("nonsense"), cjs.LockInvalidArgument);
});

test("the errors are those of the table", () => {
  const path = new URL("../../tests/conformance/tables/errors.json", import.meta.url);
  const table = JSON.parse(readFileSync(path, "utf8"));
  for (const { code, retryable, js, js_cause } of table.cases) {
    const error = new cjs[js]("what happened", { reason: "expired", lockName: "foo", nodes: [] });
    assert.ok(error instanceof Error && error instanceof cjs[table.base]);
    assert.deepEqual([error.code, error.name, error.retryable], [code, js, retryable]);
    assert.equal(error.cause?.constructor.name ?? null, js_cause);
    assert.ok(error.stack.startsWith(`${js}: what happened`));
  }
  const classes = Object.keys(cjs).filter((name) => cjs[name].prototype instanceof cjs.RedlockError);
  assert.deepEqual(classes.sort(), table.cases.map(({ js }) => js).sort());
  const declared = readFileSync(join(home, "native.d.ts"), "utf8");
  const union = (values) => values.map((value) => `'${value}'`).join(" | ");
  assert.ok(declared.includes(`code: ${union(table.cases.map(({ code }) => code))}`));
  assert.ok(declared.includes(`reason?: ${union(table.lost_reasons)}`));
});

test("it needs no global that Jest's browser environment lacks", async () => {
  await node(["--eval", "delete globalThis.TextDecoder; require('redlock-rs');"], { cwd: home });
});

test("old resolution of TypeScript finds each entry", () => {
  const { exports, typesVersions } = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
  for (const [entry, { require: { types } = {} }] of Object.entries(exports)) {
    if (entry === "." || types === undefined) continue;
    assert.deepEqual(typesVersions["*"][entry.slice(2)], [types.slice(2)]);
  }
});

test("each addon is loaded by a path that is written out", () => {
  const { napi } = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
  const loader = readFileSync(join(home, "lib/native.js"), "utf8");
  const platforms = napi.targets.map((target) => {
    const [cpu, , system, libc] = target.split("-");
    const name = `${system}-${cpu === "x86_64" ? "x64" : "arm64"}`;
    return libc === undefined ? name : `${name}-${libc}`;
  });
  for (const platform of platforms) {
    for (const place of [`../redlock.${platform}.node`, `redlock-rs-${platform}`]) {
      assert.ok(loader.includes(`require("${place}")`), place);
    }
  }
  assert.equal(loader.match(/require\(/g).length, 2 * platforms.length);
});

test("programs outside compile against the package and run, through a link", async (t) => {
  const outside = mkdtempSync(join(tmpdir(), "redlock-consumers-"));
  t.after(() => rmSync(outside, { recursive: true, force: true }));
  const from = join(home, "test/consumers");
  for (const file of readdirSync(from)) copyFileSync(join(from, file), join(outside, file));
  mkdirSync(join(outside, "node_modules/@types"), { recursive: true });
  symlinkSync(home, join(outside, "node_modules/redlock-rs"));
  symlinkSync(join(home, "node_modules/@types/node"), join(outside, "node_modules/@types/node"));
  writeFileSync(join(outside, "package.json"), JSON.stringify({ dependencies: { "redlock-rs": `file:${home}` } }));
  const files = ["consumer.mts", "consumer.cts"];
  const strict = ["--strict", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess", "--declaration"];
  const target = ["--target", "es2022", "--module", "nodenext", "--types", "node"];
  const tsc = join(home, "node_modules/typescript/bin/tsc");
  await node([tsc, ...strict, ...target, ...files], { cwd: outside }).catch(({ stdout }) => assert.fail(stdout));
  for (const file of ["consumer.mjs", "consumer.cjs"]) {
    const { stdout } = await node([file], { cwd: outside });
    assert.equal(stdout, "as expected\n");
  }
});
