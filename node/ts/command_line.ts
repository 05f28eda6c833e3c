#!/usr/bin/env node
/**
 * The program `redlock`, as npm installs it: the compiled half does all of it, and ends the process.
 */

function load(): typeof import("#native") {
  try {
    return require("#native");
  } catch (failure) {
    // A status of 1 would look like that of the command.
    console.error(`redlock: ${failure instanceof Error ? failure.message : failure}`);
    process.exit(70);
  }
}

load().commandLine(process.argv.slice(2));
