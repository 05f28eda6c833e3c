// The possible results of calls on locks of one name, and of the nodes' keys afterwards.
//
// A world is one possible state: `keys`, the owner of the key on each node, `locks`, what the objects know, and
// `brief`, when brief keys of others end. A call leads from it to other worlds, each with the result of the call. There
// is more than one only where time decides, or the order in which nodes answer. A comparison keeps the worlds that
// agree with what was seen, and there must always be one.

export const THEIRS = "theirs";
export const BRIEF = "theirs for a moment";
/** The key of a lock that is not held any more, which is about to be deleted. */
const OLD = "given up";
/** The patience of a call without a timeout. */
export const PATIENT = Number.POSITIVE_INFINITY;
/** The difference between the test's and the engine's readings of the clock, in milliseconds. */
export const GRAIN = 5;

const IDLE = { state: "not_held", ttl: 0, end: null, made: [] };

export const start = (nodes, locks) => ({ keys: Array(nodes).fill(null), locks: Array(locks).fill(IDLE), brief: null });

/** Each world once. */
export const distinct = (worlds) => [...new Map(worlds.map((world) => [JSON.stringify(world), world])).values()];

const needed = ({ keys }) => Math.floor(keys.length / 2) + 1;
const having = ({ keys }, owner) => keys.flatMap((key, node) => (key === owner ? [node] : []));
const held = ({ state }) => state === "held";

const put = (world, nodes, owner) => ({
  ...world,
  keys: world.keys.map((key, node) => (nodes.includes(node) ? owner : key)),
});

/** A lock that is not held keeps no key for long. */
function know(world, number, lock) {
  const next = { ...world, locks: world.locks.with(number, lock) };
  return held(lock) ? next : put(next, having(next, number), OLD);
}

const lose = (world, number, reason) => know(world, number, { ...IDLE, state: `lost: ${reason}` });

/** The world after all unfinished work is done. */
export const settled = (world) => put(world, having(world, OLD), null);

/** When a lease ends that was requested between two instants. */
const lease = ([begun, done], ttl) => [begun + ttl * 0.99 - 2 - GRAIN, done + ttl * 0.99 - 2 + GRAIN];

/** The worlds that time may have made, on any of the nodes. */
export function passed(world, [begun, done]) {
  let worlds = [world];
  for (const [number, { end }] of world.locks.entries()) {
    if (end === null || done < end[0]) continue;
    const over = worlds.map((each) => lose(each, number, "expired"));
    worlds = begun >= end[1] ? over : [...worlds, ...over];
  }
  const going = world.brief !== null && done >= world.brief[0];
  const brief = going ? [null, ...(begun >= world.brief[1] ? [] : [BRIEF])] : [BRIEF];
  const fates = (key) => (key === OLD ? [OLD, null] : key === BRIEF ? brief : [key]);
  return worlds.flatMap((each) => {
    const all = each.keys.reduce(
      (some, key) => some.flatMap((keys) => fates(key).map((fate) => [...keys, fate])),
      [[]],
    );
    return all.map((keys) => ({ ...each, keys }));
  });
}

/** Whether a lock that is not held could be acquired after some owners' keys are gone. */
export const could = (world, number, gone) =>
  !held(world.locks[number]) && world.keys.filter((key) => gone.includes(key)).length >= needed(world);

/** Why the lock is lost: by the first answers that rule out a quorum. The other nodes never had it. */
function reasons(world, number, asked) {
  const count = (...owners) => asked.filter((node) => owners.includes(world.keys[node])).length;
  const gone = count(null, OLD);
  const taken = asked.length - gone - count(number);
  const first = asked.length - needed(world) + 1;
  const found = new Set();
  for (let foreign = Math.max(0, first - gone); foreign <= Math.min(first, taken); foreign += 1) {
    found.add(foreign >= needed(world) ? "taken" : "deleted");
  }
  return [...found];
}

/** The possible results of each call: pairs of the result and the world afterwards. */
export const outcomes = {
  check(world, number) {
    const { state } = world.locks[number];
    return [[{ held: "done", released: "not_held" }[state] ?? state, world]];
  },

  /** Waits as long as its `patience` lasts; without any it is one try. */
  acquire(world, number, { ttl, times, closed, patience = 0 }) {
    const lock = world.locks[number];
    if (held(lock)) return [["already_held", world]];
    // The failure ends the memory of a loss.
    const failed = know(world, number, { ...IDLE, state: lock.state === "not_held" ? "not_held" : "released" });
    if (closed) return [["closed", failed]];
    const made = having(world, null);
    const results = [];
    if (made.length >= needed(world)) {
      const hold = { state: "held", ttl, end: lease(times, ttl), made };
      results.push(["acquired", know(put(world, made, number), number, hold)]);
    } else if (patience < PATIENT) {
      results.push(["timeout", failed]);
    }
    // On a slow machine the nodes may not have answered in time.
    const slow = patience > 0 && patience < PATIENT ? patience + 4 * GRAIN : ttl / 2;
    if (times[1] - times[0] > slow) results.push(["unavailable", failed]);
    return results;
  },

  /** Nodes that have forgotten it get it back, except those with a `later` fence. */
  extend(world, number, { ttl, times, later }) {
    const lock = world.locks[number];
    if (lock.state === "not_held" || lock.state === "released") return [["not_held", world]];
    if (ttl === 0) return [["invalid_argument", world]];
    if (!held(lock)) return [[lock.state, world]];
    if (having(world, number).length < needed(world)) {
      const everywhere = [...world.keys.keys()];
      return reasons(world, number, everywhere).map((reason) => [`lost: ${reason}`, lose(world, number, reason)]);
    }
    const longer = lease(times, ttl ?? lock.ttl);
    const end = lock.end.map((instant, which) => Math.max(instant, longer[which]));
    const back = having(world, null).filter((node) => !later.includes(node));
    const made = [...new Set([...lock.made, ...back])].sort();
    return [["done", know(put(world, back, number), number, { ...lock, ttl: ttl ?? lock.ttl, end, made })]];
  },

  release(world, number) {
    const lock = world.locks[number];
    const released = know(world, number, { ...IDLE, state: "released" });
    if (lock.state === "released") return [["done", world]];
    if (lock.state === "not_held") return [["not_held", world]];
    if (!held(lock)) return [[lock.state, released]];
    if (having(world, number).length >= needed(world)) return [["done", released]];
    // Nodes that have denied it are asked too, until their answer has arrived.
    const found = [lock.made, [...world.keys.keys()]].flatMap((asked) => reasons(world, number, asked));
    return found.map((reason) => [`lost: ${reason}`, released]);
  },

  /** The lock is released with its client. */
  close: (world, number) => (held(world.locks[number]) ? know(world, number, { ...IDLE, state: "released" }) : world),

  /** As a release, but only a loss is an error. */
  dispose: (world, number) =>
    outcomes.release(world, number).map(([result, after]) => [result === "not_held" ? "done" : result, after]),

  /** An acquire that is aborted before it begins, before it ends, or too late. */
  abort(world, number, given) {
    const acquired = outcomes.acquire(world, number, given).filter(([result]) => result !== "timeout");
    const lock = world.locks[number];
    if (held(lock)) return [["aborted", world], ...acquired];
    const idle = know(world, number, { ...IDLE, state: lock.state === "not_held" ? "not_held" : "released" });
    return [["aborted", world], ["aborted", idle], ...acquired];
  },

  /** An extension after another's keys are gone. It also restores keys that were free too late for the acquire. */
  regain(world, number, other, { times }) {
    const gone = settled(put(world, having(world, other), null));
    return outcomes.extend(gone, number, { times, later: [] });
  },

  /** Acquires when others' brief keys expire, and regains those. */
  outwait(world, number, given) {
    return outcomes.acquire(world, number, { ...given, patience: PATIENT }).flatMap(([acquired, next]) => {
      const regained = acquired === "acquired" ? outcomes.regain(next, number, BRIEF, given) : [["", next]];
      return regained.map(([result, last]) => [`${acquired} ${result}`, last]);
    });
  },

  /** A release while another object waits. That one may come first if it need not wait, and regains the keys. */
  handOver(world, holder, waiter, given) {
    const patient = { ...given, patience: PATIENT };
    const after = outcomes.release(world, holder).flatMap(([released, next]) => {
      const acquired = outcomes.acquire(settled(next), waiter, patient);
      return acquired.map(([acquired, last]) => [released, acquired, last]);
    });
    const before = outcomes.acquire(world, waiter, patient).flatMap(([acquired, next]) => {
      if (acquired !== "acquired") return [];
      return outcomes.release(next, holder).map(([released, last]) => [released, acquired, last]);
    });
    const both = [...after, ...before];
    // The waiter may have free nodes for a moment, in an attempt that fails.
    const also = both
      .filter(([released]) => released === "lost: deleted")
      .map(([, ...rest]) => ["lost: taken", ...rest]);
    return [...both, ...also].flatMap(([released, acquired, next]) => {
      const regained = acquired === "acquired" ? outcomes.regain(next, waiter, holder, given) : [["", next]];
      return regained.map(([result, last]) => [`${released} ${acquired} ${result}`, last]);
    });
  },

  /** `using`, with an event in its body. */
  using(world, number, event, given) {
    const everywhere = [...world.keys.keys()];
    const happen = {
      steal: (inside) => put(inside, everywhere, THEIRS),
      delete: (inside) => put(inside, everywhere, null),
      expire: (inside) => lose(inside, number, "expired"),
      release: (inside) => outcomes.release(inside, number)[0][1],
    };
    return outcomes.acquire(world, number, given).flatMap(([result, entered]) => {
      if (result !== "acquired") return [[result, entered]];
      const left = passed(entered, given.times).flatMap((inside) =>
        outcomes.dispose((happen[event] ?? ((same) => same))(inside), number),
      );
      return left.map(([result, after]) => [event === "throw" ? "thrown" : result, after]);
    });
  },

  /** Another client changes the key on some nodes. */
  others(world, nodes, owner, ends) {
    const brief = having(world, BRIEF).length > 0 ? world.brief : ends;
    const both = [Math.min(brief[0], ends[0]), Math.max(brief[1], ends[1])];
    return [["done", { ...put(world, nodes, owner), brief: owner === BRIEF ? both : world.brief }]];
  },
};
