/**
 * Puts an addon that cargo has built into `node/`, as `napi build` would, and writes its types to `node/native.d.ts`.
 *
 *     addon.mjs target/debug
 */

import { copyFile, rename, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../", import.meta.url));
const { platform, arch } = process;
const libc = platform === "linux" ? (process.report.getReport().header.glibcVersionRuntime ? "-gnu" : "-musl") : "";
const built = `${root}${process.argv[2]}/libredlock_node.${platform === "darwin" ? "dylib" : "so"}`;
const addon = `${root}node/redlock.${platform}-${arch}${libc}.node`;
// A program that has loaded the old one keeps it.
await copyFile(built, `${addon}.new`);
await rename(`${addon}.new`, addon);

const { generateTypeDef } = createRequire(`${root}node/package.json`)("@napi-rs/cli");
// The compiler has written them down (see .cargo/config.toml).
const { dts } = await generateTypeDef({ typeDefDir: `${root}target/napi-types`, cwd: `${root}node`, constEnum: false });
await writeFile(`${root}node/native.d.ts`, dts);
