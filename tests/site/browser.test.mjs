// Looks at the built site in Chromium: `node --test tests/site/browser.test.mjs`, after `make site`. CHROMIUM names the browser, by default /usr/bin/chromium.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { extname, join, normalize } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const SITE = join(ROOT, "target", "site");
const require = createRequire(join(ROOT, "target", "site-npm", "package.json"));
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const TYPES = {
  ".css": "text/css",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".json": "application/json",
  ".svg": "image/svg+xml",
  ".xml": "application/xml",
};

/** Every page, but for those that rustdoc makes. */
const PAGES = readdirSync(SITE, { recursive: true })
  .filter((file) => /(?:^|\/)index\.html$/.test(file) && !/^reference\/rust\/(?:redlock|src)\//.test(file))
  .map((file) => file.slice(0, -"index.html".length))
  .sort();

let server;
let browser;
let origin;

before(async () => {
  server = createServer(async (request, response) => {
    const path = decodeURIComponent(new URL(request.url, "http://site").pathname);
    let file = normalize(join(SITE, path));
    try {
      if ((await stat(file)).isDirectory()) file = join(file, "index.html");
      const body = readFileSync(file);
      response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream" }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  origin = `http://127.0.0.1:${server.address().port}/`;
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
  });
});

after(async () => {
  await browser?.close();
  server?.close();
});

/** A page of the site that has no errors and fetches nothing from anybody else; the test fails at its end if it does. */
async function open(context, path, options = {}) {
  const tab = await browser.newContext({ viewport: { width: 1400, height: 1000 }, ...options });
  const page = await tab.newPage();
  const wrong = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) wrong.push(message.text());
  });
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("request", (request) => {
    if (!/^(?:data|blob):/.test(request.url()) && !request.url().startsWith(origin))
      wrong.push(`fetches ${request.url()}`);
  });
  page.on("response", (response) => {
    if (response.status() >= 400) wrong.push(`${response.status()}: ${response.url()}`);
  });
  context.after(async () => {
    await tab.close();
    assert.deepEqual(wrong, []);
  });
  await page.goto(origin + path);
  return page;
}

/** What axe finds that keeps somebody out. */
async function barriers(page) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  return violations
    .filter(({ impact }) => ["serious", "critical"].includes(impact))
    .flatMap(({ id, nodes }) =>
      nodes.map(({ html, failureSummary }) => `${id}: ${html.slice(0, 160)} ${failureSummary}`),
    );
}

/** The text of the shown tab, for each group of tabs. */
const shown = (page) =>
  page.$$eval(".tabbed-set", (groups) =>
    groups.map((group) => group.querySelector(`label[for="${group.querySelector(":checked").id}"]`).textContent),
  );

test("the first page shows what it is", async (context) => {
  const page = await open(context, "");
  assert.match(await page.title(), /redlock$/);
  assert.match(await page.textContent("h1"), /lock/);
  assert.match(await page.textContent("article"), /with redlock\.lock\("invoice:17"\)/);
});

test("a tab stays chosen on every page", async (context) => {
  const page = await open(context, "start/");
  assert.deepEqual(new Set(await shown(page)), new Set(["Python"]));
  await page.click('.tabbed-labels label:has-text("Node")');
  assert.deepEqual(new Set(await shown(page)), new Set(["Node"]));
  await page.goto(`${origin}guides/timeouts/`);
  assert.deepEqual(new Set(await shown(page)), new Set(["Node"]));
  assert.match(await page.textContent("article"), /timeout: 500/);
  await page.click('.tabbed-labels label:has-text("Rust")');
  await page.goto(`${origin}guides/which-lock/`);
  assert.deepEqual(new Set(await shown(page)), new Set(["Rust"]));
});

test("a run is played, and what goes wrong is chosen", async (context) => {
  const page = await open(context, "play/");
  await page.waitForSelector('#player[data-run="pause-holder-5"] svg.stage');
  const log = () => page.textContent(".player .log");
  assert.equal(await log(), "");
  for (let step = 0; step < 40 && !(await log()).includes("refuses"); step += 1) await page.click("text=Next event");
  assert.match(
    await log(),
    /worker A gets the lock, with fence 180[\s\S]*worker A is paused[\s\S]*gets the lock[\s\S]*the store refuses worker A/,
  );
  assert.match(await page.textContent("svg.stage"), /refuses a smaller fence/);
  await page.check('input[value="kill-holder"]', { force: true });
  await page.waitForSelector('#player[data-run="kill-holder-5"]');
  assert.doesNotMatch(await log(), /paused/);
  await page.check('input[value="1"]', { force: true });
  await page.waitForSelector('#player[data-run="kill-holder-1"]');
  assert.ok(await page.isDisabled('input[value="freeze-most"]'));
  await page.click("text=Play >> visible=true >> nth=-1");
  await page.waitForFunction(() => Number.parseFloat(document.querySelector(".player .time").value) > 0.4);
  assert.match(await log(), /worker A gets the lock/);
});

test("dark mode follows the system, and can be chosen", async (context) => {
  const page = await open(context, "guides/fence/", { colorScheme: "dark" });
  const scheme = () => page.getAttribute("body", "data-md-color-scheme");
  assert.equal(await scheme(), "slate");
  assert.deepEqual(await barriers(page), []);
  const light = await open(context, "guides/fence/", { colorScheme: "light" });
  assert.equal(await light.getAttribute("body", "data-md-color-scheme"), "default");
  await light.click('label[title="Switch to light mode"]');
  await light.click('label[title="Switch to dark mode"]');
  assert.equal(await light.getAttribute("body", "data-md-color-scheme"), "slate");
});

test("nothing keeps anybody out of any page, in either theme", async (context) => {
  assert.ok(PAGES.length > 100, PAGES.join(" "));
  const looked = async (colorScheme) => {
    const page = await open(context, "", { colorScheme });
    const found = [];
    for (const path of PAGES) {
      await page.goto(origin + path);
      found.push(...(await barriers(page)).slice(0, 5).map((barrier) => `${colorScheme} /${path} ${barrier}`));
    }
    return found;
  };
  const found = await Promise.all(["light", "dark"].map(looked));
  assert.deepEqual(found.flat(), []);
});

for (const path of [
  "",
  "start/",
  "play/",
  "guides/which-lock/",
  "guides/nodes/",
  "reference/errors/",
  "reference/python/locks/",
  "reference/rust/locks/",
  "benchmarks/",
]) {
  test(`/${path} fits a phone`, async (context) => {
    const page = await open(context, path, { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(wide <= 0, `it is ${wide} pixels too wide`);
    assert.deepEqual(await barriers(page), []);
  });
}

test("it is read without JavaScript", async (context) => {
  for (const [path, expected] of [
    ["start/", /await lock\("report", \{ timeout: 500 \}\)/],
    ["guides/fence/", /refused/],
    ["play/", /the store refuses worker A/],
    ["reference/errors/", /LockTimeout/],
  ]) {
    const page = await open(context, path, { javaScriptEnabled: false });
    assert.match(await page.textContent("article"), expected, path);
  }
  const page = await open(context, "start/", { javaScriptEnabled: false });
  const isShown = () => page.locator('article code:has-text("await lock(\\"report\\"")').first().isVisible();
  assert.equal(await isShown(), false);
  await page.locator('.tabbed-set:has-text("somebody.release") label:has-text("Node")').first().click();
  assert.equal(await isShown(), true, "tabs are switched without JavaScript");
  await page.locator('nav.md-tabs a:has-text("Guides")').click();
  assert.match(await page.textContent("h1"), /Guides/);
});
