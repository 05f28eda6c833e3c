// Runs a program that awaits `work`: says "working", and goes on after a line of input. It is killed at its end, so that
// what the program itself did not release stays, and clients that are still connected do not keep it.

import { pathToFileURL } from "node:url";

globalThis.work = async () => {
  console.log("working");
  for await (const _ of process.stdin) break;
};

await import(pathToFileURL(process.argv[2]));
process.kill(process.pid, "SIGKILL");
