/** Loads the compiled half: from the package for this platform, or where it was built in a checkout. */

type Native = typeof import("../native.js");

const PLATFORMS = [
  "darwin-arm64",
  "darwin-x64",
  "linux-arm64-gnu",
  "linux-arm64-musl",
  "linux-x64-gnu",
  "linux-x64-musl",
];

/**
 * Loads what was built in a checkout, or else the package. Each place is written out, so that tools which collect the
 * files of a program find it, and within `try`, so that bundlers do not miss those for other platforms.
 */
function loadFor(platform: string, failures: unknown[]): Native | undefined {
  switch (platform) {
    case "darwin-arm64":
      try {
        return require("../redlock.darwin-arm64.node");
      } catch (failure) {
        failures.push(failure);
      }
      try {
        return require("redlock-rs-darwin-arm64");
      } catch (failure) {
        failures.push(failure);
      }
      break;
    case "darwin-x64":
      try {
        return require("../redlock.darwin-x64.node");
      } catch (failure) {
        failures.push(failure);
      }
      try {
        return require("redlock-rs-darwin-x64");
      } catch (failure) {
        failures.push(failure);
      }
      break;
    case "linux-arm64-gnu":
      try {
        return require("../redlock.linux-arm64-gnu.node");
      } catch (failure) {
        failures.push(failure);
      }
      try {
        return require("redlock-rs-linux-arm64-gnu");
      } catch (failure) {
        failures.push(failure);
      }
      break;
    case "linux-arm64-musl":
      try {
        return require("../redlock.linux-arm64-musl.node");
      } catch (failure) {
        failures.push(failure);
      }
      try {
        return require("redlock-rs-linux-arm64-musl");
      } catch (failure) {
        failures.push(failure);
      }
      break;
    case "linux-x64-gnu":
      try {
        return require("../redlock.linux-x64-gnu.node");
      } catch (failure) {
        failures.push(failure);
      }
      try {
        return require("redlock-rs-linux-x64-gnu");
      } catch (failure) {
        failures.push(failure);
      }
      break;
    case "linux-x64-musl":
      try {
        return require("../redlock.linux-x64-musl.node");
      } catch (failure) {
        failures.push(failure);
      }
      try {
        return require("redlock-rs-linux-x64-musl");
      } catch (failure) {
        failures.push(failure);
      }
      break;
  }
  return undefined;
}

function load(): Native {
  const here = `${process.platform}-${process.arch}`;
  const failures: unknown[] = [];
  // Of two for one platform, that for another libc is usually not installed, and cannot be loaded if it is.
  for (const platform of PLATFORMS.filter((known) => known === here || known.startsWith(`${here}-`))) {
    const native = loadFor(platform, failures);
    if (native !== undefined) return native;
  }
  const cause = new AggregateError(failures);
  const failed = (failures as NodeJS.ErrnoException[]).find(({ code }) => code !== "MODULE_NOT_FOUND");
  if (failed !== undefined) throw new Error(`redlock-rs cannot load its compiled part: ${failed.message}`, { cause });
  throw new Error(
    `redlock-rs has no compiled part here (${here}): install it without --omit=optional on ${PLATFORMS.join(", ")}, ` +
      "or build it from the sources with `npm run build`, which needs Rust",
    { cause },
  );
}

export = load();
