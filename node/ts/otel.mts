// Its classes are those of the CommonJS files, as in index.mts.
export * from "./otel.js";
