"""How a worker of chaos asks for a lock: its shape and names, its options, and the way in which it is used."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

POOLS = {"long": "long", "manual": "long", "stale": "long", "lease": "lease"}
"""The pools of these ways, in which others would have to wait too long. In other pools only a few names are hot."""

HOT = 0.2

IMPATIENT = 0.2
"""The share of acquires with a timeout, where no hand holds a lock for long."""

OTHER_PERMITS = 0.1
"""The share of acquires of semaphores by callers who count one permit more or less than others."""

CAREFUL, LEAST = 0.1, 0.05
"""The share of locks with a margin, and of those with a least time where it is possible."""

CAREFUL_STALE = 0.5
"""The share of locks with a margin among those that expire."""

SET_MOST = 4
"""The most names of a lock."""

SHORT_S, LEASE_S = 1.0, 12.0
"""The ttl of a lock that should expire, and of a lease."""

PATIENCE_S = 2.0
"""The timeout of an acquire, if it has one."""

LEAST_S = 0.3
"""The longest least time."""

MARGIN = 0.25
"""The largest margin, as a share of the ttl."""

CANCEL_S = 0.03
BUSY_S = 0.05
LOOK_S = 0.05
"""How often a holder asks whether it still holds the lock."""

BREATH_S = 0.05
"""The pause after a failed call, so that an outage does not cause a storm."""


TIMES = ("ttl", "timeout", "margin", "at_least", "restart_delay")
"""The options that are times."""


@dataclass(frozen=True)
class Epoch:
    """The names of an epoch, and how they are used."""

    names: dict[str, list[str]]
    """By pool."""
    sets: dict[str, list[list[str]]]
    """By pool, the names of which several can be locked together."""
    permits: int
    """Of each semaphore, as most callers count them."""
    shapes: dict[str, int]
    ways: dict[str, int]
    """How often a hand asks for which shape, and uses it in which way."""


@dataclass(frozen=True)
class Asked:
    """A lock as it is asked for."""

    shape: str
    way: str
    names: Sequence[str]
    options: Json
    how: Json = field(default_factory=lambda: {"op": "acquire"})
    """The call that acquires it, as a driver is asked for it."""
    permits: int | None = None
    """Of a semaphore."""

    @property
    def name(self) -> str:
        """The name, or all of them."""
        return ", ".join(sorted(self.names))

    @property
    def margin_s(self) -> float:
        """Its margin."""
        return float(self.options.get("margin", 0))

    @property
    def told(self) -> Json:
        """What is recorded with each of its calls."""
        if self.shape == "shared":
            return {"shared": True}
        return {"names": sorted(self.names)} if len(self.names) > 1 else {}

    @property
    def asking(self) -> Json:
        """What is recorded when it is asked for."""
        of = {"ttl_s": self.options["ttl"], "margin_s": self.margin_s, "least_s": self.options.get("at_least", 0)}
        return {"shape": self.shape, "name": self.name, "permits": self.permits, **of, **self.told}

    @property
    def request(self) -> Json:
        """What a driver is asked for, so that it makes the lock."""
        given = {name: value for name, value in self.options.items() if value is not None}
        options = {
            f"{name}_ms" if name in TIMES else name: value * 1000 if name in TIMES else value
            for name, value in given.items()
        }
        names = [name.encode().hex() for name in self.names]
        match self.shape:
            case "set":
                return {"op": "lock_all", "names": names, "options": options}
            case "slot":
                return {"op": "semaphore", "name": names[0], "permits": self.permits, "options": options}
            case "shared":
                options["shared"] = True
        return {"op": "lock", "name": names[0], "options": options}


def plain(name: str, ttl_s: float, **options: Any) -> Asked:
    """The lock of one name, for a moment."""
    return Asked("one", "brief", [name], {"ttl": ttl_s, **options})


def draw(dice: random.Random, epoch: Epoch, ttl_s: float, *, cancels: bool) -> Asked:
    """What a hand asks for next."""
    shape, way = (dice.choices(list(often), list(often.values()))[0] for often in (epoch.shapes, epoch.ways))
    pool = POOLS.get(way) or ("hot" if dice.random() < HOT else "cool")
    options = _options(dice, shape, way, ttl_s)
    how: Json = {"op": "try_acquire" if way == "try" else "acquire"}
    if way == "cancel" and not cancels:
        how["timeout_ms"] = CANCEL_S * dice.random() * 1000
    if shape == "slot":
        permits = epoch.permits + (dice.choice([-1, 1]) if dice.random() < OTHER_PERMITS else 0)
        name = dice.choice(epoch.names["slot-long" if way in POOLS else "slot"])
        return Asked(shape, way, [name], options, how, permits)
    if shape == "set" and epoch.sets[pool]:
        family = dice.choice(epoch.sets[pool])
        names = dice.sample(family, dice.randint(2, min(SET_MOST, len(family))))
        return Asked(shape, way, names, options, how)
    # In a cluster, not every pool has names that can be locked together.
    return Asked("one" if shape == "set" else shape, way, [dice.choice(epoch.names[pool])], options, how)


def _options(dice: random.Random, shape: str, way: str, ttl_s: float) -> Json:
    timeout = PATIENCE_S if way in POOLS or dice.random() < IMPATIENT else None
    options: Json = {"ttl": ttl_s, "timeout": timeout}
    match way:
        case "stale":
            options |= {"ttl": SHORT_S, "auto_renew": False}
        case "manual":
            options |= {"auto_renew": False}
        case "lease":
            # This test is not about what the process knows of restarts.
            options |= {"ttl": LEASE_S, "restart_delay": ttl_s}
    if dice.random() < (CAREFUL_STALE if way == "stale" else CAREFUL):
        options["margin"] = options["ttl"] * MARGIN * dice.random()
    if shape not in ("set", "shared") and way not in POOLS and dice.random() < LEAST:
        options["at_least"] = LEAST_S * dice.random()
    return options
