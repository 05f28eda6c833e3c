// How the Node worker of chaos asks for a lock: its shape and names, its options, and the way in which it is used.
// `asked.py` does the same, and says what the figures are.

/** From these names, where others would have to wait too long. */
const POOLS = { long: "long", manual: "long", stale: "long", lease: "lease" };
const HOT = 0.2;
const IMPATIENT = 0.2;
const OTHER_PERMITS = 0.1;
const [CAREFUL, CAREFUL_STALE, LEAST] = [0.1, 0.5, 0.05];
const LONG_TERM = 0.2;
const SET_MOST = 4;
const [LEASE_MS, LEAST_MS] = [12_000, 300];
const MARGIN = 0.25;
export const [SHORT_MS, PATIENCE_MS] = [1_000, 2_000];

/** A lock as it is asked for. */
class Asked {
  constructor(shape, way, names, options, permits = null) {
    this.shape = shape;
    this.way = way;
    this.names = [...names].sort();
    this.options = options;
    this.permits = permits;
  }

  /** The name, or all of them. */
  get name() {
    return this.names.join(", ");
  }

  get marginMs() {
    return this.options.margin ?? 0;
  }

  /** What is recorded with each of its calls. */
  get told() {
    if (this.shape === "shared") return { shared: true };
    return this.names.length > 1 ? { names: this.names } : {};
  }

  /** What is recorded when it is asked for. */
  get asking() {
    const { ttl, margin = 0, atLeast = 0 } = this.options;
    const of = { ttl_s: ttl / 1000, margin_s: margin / 1000, least_s: atLeast / 1000 };
    return { shape: this.shape, name: this.name, permits: this.permits, ...of, ...this.told };
  }

  /** The lock, of this client. */
  lock(client) {
    if (this.shape === "set") return client.lockAll(this.names, this.options);
    if (this.shape === "slot") return client.semaphore(this.name, this.permits, this.options);
    return client.lock(this.name, this.shape === "shared" ? { ...this.options, shared: true } : this.options);
  }
}

/** The lock of one name, for a moment. */
export const plain = (name, options) => new Asked("one", "brief", [name], options);

/** What a hand asks for next. */
export function draw(random, epoch, ttl) {
  const [shape, way] = [often(random, epoch.shapes), often(random, epoch.ways)];
  if (shape === "term") {
    const options = { ttl, margin: ttl * MARGIN };
    return new Asked(shape, random() < LONG_TERM ? "long" : "busy", [one(random, epoch.names.term)], options);
  }
  const pool = POOLS[way] ?? (random() < HOT ? "hot" : "cool");
  const options = drawn(random, shape, way, ttl);
  if (shape === "slot") {
    const permits = epoch.permits + (random() < OTHER_PERMITS ? one(random, [-1, 1]) : 0);
    return new Asked(shape, way, [one(random, epoch.names[way in POOLS ? "slot-long" : "slot"])], options, permits);
  }
  if (shape === "set" && epoch.sets[pool].length > 0) {
    const family = [...one(random, epoch.sets[pool])];
    const most = Math.min(SET_MOST, family.length);
    const names = [];
    for (let left = 2 + Math.floor(random() * (most - 1)); left > 0; left -= 1) {
      names.push(...family.splice(Math.floor(random() * family.length), 1));
    }
    return new Asked(shape, way, names, options);
  }
  // In a cluster, not every pool has names that can be locked together.
  return new Asked(shape === "set" ? "one" : shape, way, [one(random, epoch.names[pool])], options);
}

function drawn(random, shape, way, ttl) {
  const patient = !(way in POOLS) && random() > IMPATIENT;
  const options = { ttl, timeout: patient ? undefined : PATIENCE_MS };
  if (way === "stale") Object.assign(options, { ttl: SHORT_MS, autoRenew: false });
  if (way === "manual") options.autoRenew = false;
  // A lease is not about what this process knows of restarts.
  if (way === "lease") Object.assign(options, { ttl: LEASE_MS, restartDelay: ttl });
  if (random() < (way === "stale" ? CAREFUL_STALE : CAREFUL)) options.margin = options.ttl * MARGIN * random();
  if (!["set", "shared"].includes(shape) && !(way in POOLS) && random() < LEAST) options.atLeast = LEAST_MS * random();
  return options;
}

const one = (random, choices) => choices[Math.floor(random() * choices.length)];

/** One of the keys, as often as its value says. */
function often(random, choices) {
  let left = random() * Object.values(choices).reduce((sum, share) => sum + share, 0);
  for (const [choice, share] of Object.entries(choices)) {
    left -= share;
    if (left < 0) return choice;
  }
  throw new Error("they go up to their sum");
}
