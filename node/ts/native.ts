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
 * Loads it from one place. Each is written out, so that tools which collect the files of a program find it, and within
 * `try`, so that bundlers do not miss those for other platforms.
 */
function loadFrom(place: string, failures: unknown[]): Native | undefined {
  try {
    switch (place) {
      case "../redlock.darwin-arm64.node":
        return require("../redlock.darwin-arm64.node");
      case "redlock-rs-darwin-arm64":
        return require("redlock-rs-darwin-arm64");
      case "../redlock.darwin-x64.node":
        return require("../redlock.darwin-x64.node");
      case "redlock-rs-darwin-x64":
        return require("redlock-rs-darwin-x64");
      case "../redlock.linux-arm64-gnu.node":
        return require("../redlock.linux-arm64-gnu.node");
      case "redlock-rs-linux-arm64-gnu":
        return require("redlock-rs-linux-arm64-gnu");
      case "../redlock.linux-arm64-musl.node":
        return require("../redlock.linux-arm64-musl.node");
      case "redlock-rs-linux-arm64-musl":
        return require("redlock-rs-linux-arm64-musl");
      case "../redlock.linux-x64-gnu.node":
        return require("../redlock.linux-x64-gnu.node");
      case "redlock-rs-linux-x64-gnu":
        return require("redlock-rs-linux-x64-gnu");
      case "../redlock.linux-x64-musl.node":
        return require("../redlock.linux-x64-musl.node");
      case "redlock-rs-linux-x64-musl":
        return require("redlock-rs-linux-x64-musl");
    }
  } catch (failure) {
    failures.push(failure);
  }
  return undefined;
}

function load(): Native {
  const here = `${process.platform}-${process.arch}`;
  const failures: unknown[] = [];
  // Of two for one platform, that for another libc is usually not installed, and cannot be loaded if it is.
  for (const platform of PLATFORMS.filter((known) => known === here || known.startsWith(`${here}-`))) {
    // What was built in a checkout, or else the package.
    const native = loadFrom(`../redlock.${platform}.node`, failures) ?? loadFrom(`redlock-rs-${platform}`, failures);
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
