// Every class comes from the CommonJS files, so that `instanceof` agrees however the package was loaded.
export * from "./index.js";
