// Plays recorded runs on the page "Play a run", and makes what scrolls sideways reachable with the keyboard.
(() => {
  const DAWN = 1_750_000_000_000_000;
  const JOURNEY = 40;
  const NAMES = {
    nothing: "nothing",
    "pause-holder": "pause the holder",
    "kill-holder": "kill the holder",
    "freeze-node": "freeze a node",
    "restart-node": "restart a node without its data",
    "freeze-most": "freeze three nodes",
    "restart-most": "restart three nodes without their data",
  };
  /** How fast virtual time passes. */
  const SPEEDS = { slow: 0.15, half: 0.5, real: 1 };

  const fence = (number) =>
    Math.floor((number - DAWN) / 1000)
      .toLocaleString("en")
      .replaceAll(",", " ");

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function shape(name, attributes = {}, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  }

  /** What is to be seen at a moment of a run. */
  function stateAt(run, now) {
    const state = {
      workers: run.workers.map(() => ({ does: "begins", fence: null, trouble: "", lost: false })),
      nodes: Array.from({ length: run.nodes }, () => ({ holder: null, fence: null, last: null, trouble: "" })),
      store: { fence: 0, by: null, refused: null },
      log: [],
    };
    for (const event of run.events) {
      if (event.t > now) break;
      const worker = state.workers[event.p];
      const node = state.nodes[event.n];
      const name = `worker ${run.workers[event.p]}`;
      const log = (words, bad = false) => state.log.push({ t: event.t, words, bad });
      switch (event.e) {
        case "want":
          Object.assign(worker, { does: "waits", fence: null, lost: false });
          break;
        case "won":
          Object.assign(worker, { does: "holds", fence: event.fence });
          log(`${name} gets the lock, with fence ${fence(event.fence)}`);
          break;
        case "released":
        case "unconfirmed":
          Object.assign(worker, { does: "rests", fence: null });
          log(`${name} releases the lock`);
          break;
        case "lost":
          Object.assign(worker, { does: "rests", fence: null, lost: true });
          log(`${name} is notified that its lock is lost (${event.reason})`, true);
          break;
        case "paused":
          worker.trouble = "paused";
          log(`${name} is paused`, true);
          break;
        case "resumed":
          worker.trouble = "";
          log(`${name} goes on`);
          break;
        case "killed":
          Object.assign(worker, { trouble: "killed", fence: null, does: "" });
          log(`${name} is killed`, true);
          break;
        case "frozen":
        case "down":
          node.trouble = event.e;
          log(`node ${event.n + 1} is ${event.e}`, true);
          break;
        case "thawed":
        case "up":
          node.trouble = "";
          log(
            event.e === "up"
              ? `node ${event.n + 1} is up again, without its data`
              : `node ${event.n + 1} answers again`,
          );
          break;
        case "has":
          Object.assign(node, { holder: event.holder, fence: event.fence, last: event.last });
          break;
        case "write":
          if (event.ok) state.store = { fence: event.fence, by: event.p, refused: null };
          else {
            state.store.refused = event.t;
            log(`the store refuses ${name}: ${fence(event.fence)} is smaller than ${fence(state.store.fence)}`, true);
          }
          break;
      }
    }
    return state;
  }

  /** Messages that are on their way at a moment. */
  function messagesAt(run, now) {
    return run.events
      .filter(({ e, t }) => (e === "ask" || e === "answer") && t <= now && now < t + JOURNEY)
      .map(({ e, p, n, t }) => ({ p, n, way: e === "ask" ? (now - t) / JOURNEY : 1 - (now - t) / JOURNEY, e }));
  }

  class Stage {
    constructor(run) {
      this.run = run;
      this.svg = shape("svg", { class: "stage", viewBox: "0 0 760 330", role: "img" });
      this.workers = run.workers.map((name, number) => this.box(30 + number * 250, 14, 200, 64, `worker ${name}`));
      const width = run.nodes === 1 ? 200 : 132;
      const left = (number) => (run.nodes === 1 ? 280 : 18 + number * 148);
      this.nodes = Array.from({ length: run.nodes }, (_, number) =>
        this.box(left(number), 158, width, 76, run.nodes === 1 ? "the node" : `node ${number + 1}`),
      );
      this.store = this.box(230, 262, 300, 56, "the store");
      this.ways = shape("g");
      for (const worker of this.workers) {
        for (const node of this.nodes) {
          this.ways.append(shape("line", { class: "way", x1: worker.x, y1: 78, x2: node.x, y2: 158 }));
        }
      }
      this.messages = shape("g");
      this.svg.prepend(this.ways);
      this.svg.append(this.messages);
    }

    box(x, y, width, height, title) {
      const group = shape("g");
      const lines = [shape("text", { x: x + 10, y: y + 20 }, title)];
      lines.push(shape("text", { x: x + 10, y: y + 39, class: "state" }));
      if (height > 60) lines.push(shape("text", { x: x + 10, y: y + 56, class: "state" }));
      group.append(shape("rect", { class: "box", x, y, width, height, rx: 6 }), ...lines);
      this.svg.append(group);
      return { group, lines, x: x + width / 2, y: y + height / 2 };
    }

    show(now) {
      const { run } = this;
      const state = stateAt(run, now);
      const say = (box, kind, ...words) => {
        box.group.setAttribute("class", kind);
        words.forEach((text, line) => {
          box.lines[line + 1].textContent = text;
        });
        box.lines[1].setAttribute(
          "class",
          kind.includes("trouble") || kind.includes("refusal") ? "state bad" : "state",
        );
      };
      this.workers.forEach((box, number) => {
        const { does, fence: own, trouble, lost } = state.workers[number];
        const kind = `${own ? `held${number}` : ""}${trouble ? " trouble" : ""}`;
        const held = own ? `holds, fence ${fence(own)}` : lost && does === "rests" ? "has lost the lock" : does;
        say(box, kind, trouble || held, trouble && own ? `believes in fence ${fence(own)}` : "");
      });
      this.nodes.forEach((box, number) => {
        const { holder, fence: held, last, trouble } = state.nodes[number];
        const by = run.workers.indexOf(holder);
        const kind = `${by >= 0 ? `held${by}` : ""}${trouble ? " trouble" : ""}`;
        const has = by >= 0 ? `${holder}, fence ${fence(held)}` : "free";
        say(box, kind, trouble || has, last ? `last fence ${fence(last)}` : "no fence yet");
      });
      const { by, refused, fence: largest } = state.store;
      const isRefusal = refused !== null && now - refused < 1200;
      const kind = isRefusal ? "refusal" : by === null ? "" : `held${by}`;
      say(
        this.store,
        kind,
        isRefusal ? "refuses a smaller fence" : largest ? `largest fence ${fence(largest)}` : "empty",
      );
      this.messages.replaceChildren(
        ...messagesAt(run, now).map(({ p, n, way }) => {
          const [from, to] = [this.workers[p], this.nodes[n]];
          const x = from.x + (to.x - from.x) * way;
          return shape("circle", { class: `w${p}`, cx: x, cy: 78 + 80 * way, r: 5 });
        }),
      );
      this.svg.setAttribute("aria-label", state.log.length > 0 ? state.log.at(-1).words : "The workers begin");
      return state.log;
    }
  }

  class Player {
    constructor(root) {
      this.root = root;
      this.base = new URL("../assets/runs/", document.baseURI);
      this.runs = new Map();
      this.now = 0;
      this.speed = SPEEDS.half;
      this.trouble = "pause-holder";
      this.nodes = 5;
      this.playing = false;
      this.count = this.choices("How many nodes", "nodes", { 1: "one", 5: "five" }, "5", (nodes) => {
        this.nodes = Number(nodes);
        if (this.nodes === 1 && this.trouble.endsWith("-most")) this.choose("freeze-node");
        this.load(true);
      });
      const troubles = Object.fromEntries(root.dataset.runs.split(" ").map((name) => [name, NAMES[name]]));
      this.what = this.choices("What goes wrong, at 1.5 s", "trouble", troubles, this.trouble, (trouble) => {
        this.trouble = trouble;
        this.load(false);
      });
      this.button = element("button", { type: "button" }, "Play");
      this.button.addEventListener("click", () => this.toggle());
      const step = element("button", { type: "button" }, "Next event");
      step.addEventListener("click", () => this.step());
      this.slider = element("input", { type: "range", min: "0", step: "10", value: "0", "aria-label": "Time" });
      this.slider.addEventListener("input", () => {
        this.pause();
        this.seek(Number(this.slider.value));
      });
      this.time = element("output", { class: "time" }, "0.00 s");
      const speeds = { slow: "slow", half: "half as fast", real: "real time" };
      this.pace = this.choices("How fast", "speed", speeds, "half", (speed) => {
        this.speed = SPEEDS[speed];
      });
      this.place = element("div", { class: "place" });
      this.log = element("ol", { class: "log", tabindex: "0", "aria-label": "What has happened" });
      const controls = element("div", { class: "controls" }, this.button, step, this.slider, this.time);
      root.replaceChildren(this.count, this.what, this.pace, controls, this.place, this.log);
      this.load(true);
    }

    choices(title, name, options, chosen, choose) {
      const made = element("fieldset", {}, element("legend", {}, title));
      for (const [value, words] of Object.entries(options)) {
        const input = element("input", { type: "radio", name: `player-${name}`, value });
        input.checked = value === chosen;
        input.addEventListener("change", () => choose(value));
        made.append(element("label", { class: "choice" }, input, words));
      }
      return made;
    }

    choose(trouble) {
      this.trouble = trouble;
      this.what.querySelector(`[value="${trouble}"]`).checked = true;
    }

    /** Goes on at the same moment, or just before the trouble begins if that is over: until then all runs are the same. */
    async load(anew) {
      for (const input of this.what.querySelectorAll("input")) {
        input.disabled = this.nodes === 1 && input.value.endsWith("-most");
      }
      const name = `${this.trouble}-${this.nodes}`;
      if (!this.runs.has(name)) {
        const answer = await fetch(new URL(`${name}.json`, this.base));
        this.runs.set(name, await answer.json());
      }
      if (name !== `${this.trouble}-${this.nodes}`) return;
      this.run = this.runs.get(name);
      this.stage = new Stage(this.run);
      this.place.replaceChildren(this.stage.svg);
      reachable();
      this.slider.max = String(this.run.end);
      this.shown = -1;
      this.seek(anew ? 0 : Math.min(this.now, this.run.cue - 300));
      this.root.dataset.run = name;
    }

    seek(now) {
      this.now = Math.max(0, Math.min(now, this.run.end));
      const log = this.stage.show(this.now);
      if (log.length !== this.shown) {
        this.shown = log.length;
        this.log.replaceChildren(
          ...log.map(({ t, words, bad }) =>
            element("li", bad ? { class: "bad" } : {}, `${(t / 1000).toFixed(2)} s: ${words}`),
          ),
        );
        this.log.scrollTop = this.log.scrollHeight;
      }
      this.slider.value = String(this.now);
      this.time.value = `${(this.now / 1000).toFixed(2)} s`;
    }

    toggle() {
      if (this.playing) return this.pause();
      if (this.now >= this.run.end) this.seek(0);
      this.playing = true;
      this.button.textContent = "Pause";
      this.last = performance.now();
      requestAnimationFrame((at) => this.frame(at));
    }

    pause() {
      this.playing = false;
      this.button.textContent = "Play";
    }

    frame(at) {
      if (!this.playing) return;
      this.seek(this.now + Math.max(0, at - this.last) * this.speed);
      this.last = at;
      if (this.now >= this.run.end) return this.pause();
      requestAnimationFrame((next) => this.frame(next));
    }

    step() {
      this.pause();
      const next = this.run.events.find(({ e, t }) => t > this.now && !["ask", "answer", "ran", "has"].includes(e));
      this.seek(next ? next.t : this.run.end);
    }
  }

  const player = document.getElementById("player");
  if (player) new Player(player);

  /** What scrolls sideways can be reached with the keyboard; what fits is no stop on the way. */
  function reachable() {
    for (const scrolls of document.querySelectorAll(
      ".md-typeset pre > code, .md-typeset__scrollwrap, .md-typeset__table, .hero-picture, p:has(> img), .drawn, .place",
    )) {
      if (scrolls.scrollWidth > scrolls.clientWidth) scrolls.setAttribute("tabindex", "0");
      else if (scrolls.getAttribute("tabindex") === "0") scrolls.removeAttribute("tabindex");
    }
  }
  addEventListener("load", reachable);
  addEventListener("resize", reachable);
  addEventListener("change", reachable);
})();
