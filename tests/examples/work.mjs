// Runs a program that awaits `work`. `work` writes "working", and ends after a line of input. The program is killed at
// its end, so that locks which it did not release stay, and connected clients do not keep it alive.

import { pathToFileURL } from "node:url";

globalThis.work = async () => {
  console.log("working");
  for await (const _ of process.stdin) break;
};

await import(pathToFileURL(process.argv[2]));
process.kill(process.pid, "SIGKILL");
