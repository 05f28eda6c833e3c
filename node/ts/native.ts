/** Loads the compiled half: from the package for this platform, or where it was built in a checkout. */

const PLATFORMS = [
  "darwin-arm64",
  "darwin-x64",
  "linux-arm64-gnu",
  "linux-arm64-musl",
  "linux-x64-gnu",
  "linux-x64-musl",
];

function load(): typeof import("../native.js") {
  const here = `${process.platform}-${process.arch}`;
  const failures: unknown[] = [];
  // Of two for one platform, that for another libc is usually not installed, and cannot be loaded if it is.
  for (const platform of PLATFORMS.filter((known) => known === here || known.startsWith(`${here}-`))) {
    for (const place of [`../redlock.${platform}.node`, `redlock-rs-${platform}`]) {
      try {
        return require(place);
      } catch (failure) {
        failures.push(failure);
      }
    }
  }
  throw new Error(
    `redlock-rs has no compiled part here (${here}): install it without --omit=optional on ${PLATFORMS.join(", ")}, ` +
      "or build it from the sources with `npm run build`, which needs Rust",
    { cause: new AggregateError(failures) },
  );
}

export = load();
