// What people search for is found: the search of the built site itself, without a browser. `make site` runs it.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { createContext, runInContext } from "node:vm";

const SITE = new URL("../../target/site/", import.meta.url);
const WORKERS = new URL("assets/javascripts/workers/", SITE);

/** The kinds of messages between the theme's page and its worker. */
const SETUP = 0;
const QUERY = 2;

/** The worker of the theme, as the browser runs it. */
function worker() {
  const self = {
    addEventListener: (_, listener) => Object.assign(self, { listener }),
    location: { href: "http://site/" },
  };
  const global = createContext(Object.assign(self, { self, performance, setTimeout, console }));
  const [file] = readdirSync(WORKERS).filter((name) => /^search\..*\.js$/.test(name));
  runInContext(readFileSync(new URL(file, WORKERS), "utf8"), global);
  return (type, data) =>
    new Promise((resolve) => {
      self.postMessage = resolve;
      self.listener({ data: { type, data } });
    });
}

const ask = worker();
const index = JSON.parse(readFileSync(new URL("search/search_index.json", SITE), "utf8"));
await ask(SETUP, { ...index, options: { suggest: false } });

for (const [words, page] of [
  ["django", "guides/frameworks/"],
  ["kleppmann", "concepts/is-redlock-safe/"],
  ["fencing token", "guides/fence/"],
  ["stuck", "guides/stuck-or-lost/"],
  ["timeout", "guides/timeouts/"],
  ["kubernetes", "faq/"],
  ["cronjob", "guides/command-line/"],
  ["upgrade", "guides/upgrading/"],
  ["windows", "start/"],
  ["glossary", "concepts/glossary/"],
]) {
  test(`the first page that a search for "${words}" finds is ${page}`, async () => {
    const { data } = await ask(QUERY, words);
    const found = data.items.map(([hit]) => hit.location.replace(/#.*/, ""));
    assert.equal(found[0], page, found.slice(0, 4).join(" "));
  });
}
