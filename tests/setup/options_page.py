"""Writes the headings of `core/docs/options.md`: for each option a use and an example in three languages.

python tests setup.options_page

Those in Rust are also a program, `core/examples/options.rs`, so that they are compiled.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from datetime import timedelta

from setup.node_options import camel
from support.process import TESTS

PAGE = TESTS.parent / "core" / "docs" / "options.md"
PROGRAM = TESTS.parent / "core" / "examples" / "options.rs"
BEGIN, END = "<!-- python tests setup.options_page writes from here -->", "<!-- to here -->"

SHAPES = (
    "a lock of one name",
    "a semaphore",
    "a lock of several names",
    "a lock for readers",
    "an election",
    'a lock with `protocol="setnx"`',
)
"""What may take an option."""
NAME, SEMAPHORE, NAMES, READERS, ELECTION, SETNX = SHAPES

Value = timedelta | bool | int | str


@dataclass(frozen=True)
class Use:
    """What one option is for, and the values of its example, by option."""

    why: str
    values: dict[str, Value]
    refused: tuple[str, ...] = ()
    """What does not take it."""
    client: bool = False
    """Whether only a client takes it."""
    node: str = "redis://a"


def _seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def _client(why: str, *, node: str = "redis://a", **values: Value) -> Use:
    return Use(why, values, SHAPES, client=True, node=node)


USES = {
    "ttl": Use("A crashed holder blocks others for at most 30 s.", {"ttl": _seconds(30)}),
    "timeout": Use(
        "Give up after 5 s. A candidate of an election waits as long as it takes.",
        {"timeout": _seconds(5)},
        (ELECTION,),
    ),
    "auto_renew": Use(
        "The lock ends after its ttl, even if the work is not done. Each `extend` moves the end.",
        {"auto_renew": False},
        (ELECTION,),
    ),
    "max_hold": Use(
        "Work that hangs loses the lock after 5 minutes, with the reason `max_hold`.",
        {"max_hold": _seconds(300)},
        (ELECTION,),
    ),
    "at_least": Use(
        "A job that many hosts start at the same minute runs once, even if it takes only a second."
        " In a semaphore, each slot has this time.",
        {"at_least": _seconds(60)},
        (NAMES, READERS, ELECTION, SETNX),
    ),
    "margin": Use(
        "After a loss, the holder has 3 s to stop before others can acquire the lock.",
        {"margin": _seconds(3)},
        (SETNX,),
    ),
    "node_timeout": Use("A node on another continent may take 2 s to answer.", {"node_timeout": _seconds(2)}, ()),
    "restart_delay": Use(
        "Another program locks this name with a ttl of 60 s, so a restarted node stays out for 60 s.",
        {"restart_delay": _seconds(60)},
    ),
    "fence_ttl": Use(
        "Fences of a name that is used once a day stay in order, whatever the clocks do.",
        {"fence_ttl": timedelta(days=2)},
        (SETNX,),
    ),
    "label": Use("`redlock status` shows this text instead of host:pid.", {"label": "web-2"}, (SETNX,)),
    "protocol": Use(
        "Excludes [older SETNX code](setnx.md) that uses the same key.",
        {"protocol": "setnx"},
        (SEMAPHORE, NAMES, READERS, ELECTION),
    ),
    "connect_timeout": _client("A server that is slow to connect gets 5 s.", connect_timeout=_seconds(5)),
    "keepalive": _client("A firewall forgets idle connections after 30 s.", keepalive=_seconds(20)),
    "max_connections": _client("Up to 32 blocking threads talk to each node at once.", max_connections=32),
    "key_prefix": _client('The key of `lock("report")` is `shop:report`.', key_prefix="shop:"),
    "password_file": _client("The password is a mounted secret, and can change.", password_file="/run/secrets/redis"),
    "tls_ca": _client("The server's certificate comes from your own CA.", node="rediss://a", tls_ca="ca.pem"),
    "tls_cert": _client(
        "The server asks for a certificate of the client.",
        node="rediss://a",
        tls_cert="client.pem",
        tls_key="client.key",
    ),
    "tls_key": _client(
        "Always together with `tls_cert`. The key is not encrypted.",
        node="rediss://a",
        tls_cert="client.pem",
        tls_key="client.key",
    ),
    "tls_server_name": _client(
        "The connection goes through a tunnel, so the address has another host.",
        node="rediss://localhost",
        tls_server_name="redis.internal",
    ),
}
"""Every option, in the order of the page."""


def _number(value: float) -> str:
    return f"{value:_.0f}"


def _in_python(name: str, value: Value) -> str:
    shown = _number(value.total_seconds()) if isinstance(value, timedelta) else repr(value).replace("'", '"')
    return f"{name}={shown}"


def _in_node(name: str, value: Value) -> str:
    if isinstance(value, timedelta):
        return f"{camel(name)}: {_number(value.total_seconds() * 1_000)}"
    return f"{camel(name)}: {str(value).lower() if isinstance(value, bool) else _in_rust_or_node(value)}"


def _in_rust_or_node(value: int | str) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _in_rust(name: str, value: Value) -> str:
    if isinstance(value, timedelta):
        return f".{name}(Duration::from_secs({_number(value.total_seconds())}))"
    return f".{name}({str(value).lower() if isinstance(value, bool) else _in_rust_or_node(value)})"


def python(use: Use) -> str:
    """The example in Python."""
    values = ", ".join(_in_python(*item) for item in use.values.items())
    return f'redlock.Redlock("{use.node}", {values})' if use.client else f'redlock.lock("report", {values})'


def node(use: Use) -> str:
    """The example in Node."""
    values = f"{{ {', '.join(_in_node(*item) for item in use.values.items())} }}"
    return f'new Redlock("{use.node}", {values})' if use.client else f'lock("report", {values})'


def rust(use: Use) -> str:
    """The example in Rust."""
    if use.values.get("protocol") == "setnx":
        return 'redlock.setnx_lock("report")'
    values = "".join(_in_rust(*item) for item in use.values.items())
    return (
        f'Redlock::builder().nodes("{use.node}"){values}.build()?' if use.client else f'redlock.lock("report"){values}'
    )


def _takers(use: Use) -> str:
    if use.client:
        return "Only a client takes it."
    if len(use.refused) * 2 > len(SHAPES):
        return f"Only {' or '.join(shape for shape in SHAPES if shape not in (*use.refused, SETNX))} takes it."
    return f"Every lock takes it, except {' and '.join(use.refused)}." if use.refused else "Every lock takes it."


def _section(name: str, use: Use, default: str) -> str:
    code = "\n\n".join(
        f"```{language}\n{example(use)}\n```"
        for language, example in {"python": python, "js": node, "rust": rust}.items()
    )
    said = f"Default: {default.removeprefix('none: ')}. {_takers(use)}"
    said, why = (textwrap.fill(text, 120, break_on_hyphens=False) for text in (said, use.why))
    return f"### `{name}`\n\n{said}\n\n{why}\n\n{code}"


def written(page: str) -> str:
    """The page with the sections of today."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| .+ \|$", page, re.M)
    sections = [_section(name, USES[name], default) for name, default in rows]
    return "\n\n".join([head + BEGIN, *sections, END + tail])


def program() -> str:
    """The program with the examples in Rust."""
    examples = dict.fromkeys(rust(use) for use in USES.values())
    return "\n".join(
        [
            "//! The examples of docs/options.md, which `python tests setup.options_page` writes.",
            "",
            "use std::time::Duration;",
            "",
            "use redlock::Redlock;",
            "",
            "fn main() -> Result<(), redlock::Error> {",
            "    let redlock = Redlock::from_env()?;",
            *(f"    let _ = {example};" for example in examples),
            "    Ok(())",
            "}",
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    PROGRAM.write_text(program(), encoding="utf-8")
