"""Writes the options into `node/README.md`, as `core/docs/options.md` has them, in the spelling and the units of Node.

python tests setup.node_options
"""

from __future__ import annotations

import re

from support.process import TESTS

README = TESTS.parent / "node" / "README.md"
PAGE = TESTS.parent / "core" / "docs" / "options.md"
REPOSITORY = "https://github.com/redlock-rs/redlock/blob/"
BEGIN, END = "<!-- python tests setup.node_options writes from here -->", "<!-- to here -->"

MILLISECONDS = {"ms": 1, "s": 1_000, "h": 3_600_000}
CLIENT = "of a client only: "


def camel(name: str) -> str:
    """The name of an option in Node."""
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def _in_node(cell: str) -> str:
    cell = re.sub(r"; in Rust [^|]*", "", cell.removeprefix(CLIENT))
    cell = re.sub(r"\b(\d+) (ms|s|h)\b", lambda found: f"{int(found[1]) * MILLISECONDS[found[2]]:_}", cell)
    cell = cell.replace("none: wait", "`null`: wait")
    cell = re.sub(r"`([a-z]+(?:_[a-z]+)+)`", lambda found: f"`{camel(found[1])}`", cell)
    # `main`, or the tag of a release.
    ref = README.read_text(encoding="utf-8").split(REPOSITORY)[1].partition("/")[0]
    return re.sub(r"\]\((\w[\w-]*\.md)", rf"]({REPOSITORY}{ref}/core/docs/\1", cell)


def table(page: str) -> list[str]:
    """The rows of Node's table, as wide as the formatter wants them."""
    rows: list[tuple[str, ...]] = [("option", "of", "default", "meaning")]
    for name, default, meaning in re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", page, re.M):
        owner = "client" if meaning.startswith(CLIENT) else "lock, client"
        rows.append((f"`{camel(name)}`", owner, _in_node(default), _in_node(meaning)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    return [f"| {' | '.join(map(str.ljust, row, widths))} |" for row in rows]


def written(readme: str, page: str) -> str:
    """The README with the table of today."""
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return "\n".join([head + BEGIN, "", *table(page), "", END + tail])


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8"), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
