"""Every place that names the options names all of them, as the table in core/src/options.rs has them.

Sources are read as text, because that needs no build.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from conformance.conftest import ROOT
from conformance.driver import table
from conformance.test_setnx import MEANINGLESS
from setup.node_options import camel, written

DURATIONS = {"Duration", "Timeout"}
"""The kinds of options that are durations."""

PYTHON_TYPES = {
    "Duration": "Duration",
    "Timeout": "Duration",
    "Flag": "bool",
    "Count": "int",
    "Text": r"str|Literal\[.+\]",
    "Path": r"str \| os\.PathLike\[str\]",
}
NODE_TYPES = {
    "Duration": "number",
    "Timeout": "number",
    "Flag": "boolean",
    "Count": "number",
    "Text": r'string|"\w+" \| .+',
    "Path": "string",
}
"""The type of each kind's values, beside that of the built-in default."""


class Option(NamedTuple):
    """A row of the table of options."""

    name: str
    scope: str
    kind: str

    @property
    def key(self) -> str:
        """Its name in the tables of the suite, whose durations are milliseconds."""
        return f"{self.name}_ms" if self.kind in DURATIONS else self.name

    @property
    def camel(self) -> str:
        """Its name in Node."""
        return camel(self.name)


def read(path: str) -> str:
    """The text of a file."""
    return (ROOT / path).read_text(encoding="utf-8")


def between(path: str, start: str, end: str = "\n}\n") -> str:
    """The part of a file behind `start` and before `end`."""
    _, found, rest = read(path).partition(start)
    assert found, f"{path} has no {start!r}"
    return rest.partition(end)[0]


def parsed(row: str) -> Option:
    """A row of the table."""
    match = re.fullmatch(r"    (\w+): .+, (Lock|Client), (Duration|Timeout|Flag|Count|Text|Path)\(given\) => .+;", row)
    assert match, f"not a row of options: {row!r}"
    return Option(*match.groups())


OPTIONS = [parsed(row) for row in between("core/src/options.rs", "\noptions! {\n").splitlines()]


def names(scope: str) -> set[str]:
    """The names of all options that a lock has, or only a client."""
    return {option.name for option in OPTIONS if option.scope == scope}


# --- The engine ---


def test_settings() -> None:
    """The engine uses the options in force, and a client's own where the client is built."""
    fields = re.findall(r"^    pub\(crate\) (\w+): ", between("core/src/options.rs", "struct Settings {\n"), re.M)
    assert set(fields) == names("Lock")
    builder = between("core/src/api/client.rs", "impl Builder {\n")
    addresses = between("core/src/address/mod.rs", "fn with_options(", "\n    }\n")
    used = re.findall(r"\boptions\.(\w+)\b(?!\()", builder + addresses)
    assert set(used) == names("Client")


def test_setters() -> None:
    """The type of a lock in Rust says its protocol."""
    of_client, of_lock = (
        set(re.findall(r"^ {12}(\w+): .+ => .+;$", text, re.M))
        for text in read("core/src/api/setters.rs").split("macro_rules! option_setters {")
    )
    assert of_lock == names("Lock") - {"protocol"}
    assert of_client == names("Client")


def test_older_protocol() -> None:
    """There, a lock's option has an effect, or it is refused."""
    cases = [row for row in table("options")["cases"] if row["options"].get("protocol") == "setnx" and "ok" in row]
    accepted = {option.name for option in OPTIONS for row in cases if option.key in row["options"]}
    check = between("core/src/options.rs", "fn check_own(", "\n    }\n")
    refused = set(re.findall(r'"(\w+)", self\.\w+\.is_some\(\)', check))
    # A lock that cannot be extended ends with its ttl, and `max_hold` is never shorter.
    assert accepted | refused == names("Lock") - {"max_hold"}
    assert {option.name for option in OPTIONS for given in MEANINGLESS if option.key in given} == refused
    setters = re.findall(r"pub fn (\w+)\(self, ", between("core/src/api/setters.rs", "macro_rules! setnx_setters {"))
    # Rust has a type of lock for the protocol, and never renews it.
    assert set(setters) == accepted - {"protocol", "auto_renew"}


# --- The tables of the suite ---


def test_table_of_options() -> None:
    cases = table("options")["cases"]
    assert {key for row in cases for key in row["options"]} == {option.key for option in OPTIONS}
    accepted = {key for row in cases for key in row["options"] if key in row.get("ok", {})}
    assert accepted == {option.key for option in OPTIONS}
    refused = {row["error"]["mentions"][0].split()[0] for row in cases if "error" in row}
    # Every timeout is right, and so is every flag.
    assert refused >= {option.name for option in OPTIONS if option.kind in {"Duration", "Text", "Path"}}


def test_table_of_durations() -> None:
    """Locks are made with them, so that options of a client are tested elsewhere."""
    durations = {option.name for option in OPTIONS if option.kind in DURATIONS} & names("Lock")
    for language in ("python", "node", "rust"):
        rows = [row for row in table("durations")["cases"] if row["language"] == language]
        assert {name for row in rows if "error" not in row for name in row["given"]} == durations, language
        # Rust has no duration that is a wrong timeout.
        always_right = {"timeout"} if language == "rust" else set()
        refused = {name for row in rows if "error" in row for name in row["given"]}
        assert refused == durations - always_right, language


def test_table_of_the_surface() -> None:
    """test_surface.py and core/tests/suite/surface.rs compare it with the packages."""
    listed = read("tests/conformance/tables/surface.json")
    expected = {f"blocking::{name}" for name in rust_names()} | rust_names()
    for option in OPTIONS:
        of_client = option.scope == "Client"
        expected.add(f"{'ClientOptions' if of_client else 'Options'}.{option.name}")
        expected.add(f"{'ClientOptions' if of_client else 'LockOptions'}.{option.camel}")
    assert {name for name in expected if f'"{name}"' not in listed} == set()


def rust_names() -> set[str]:
    """The setters of options, as users of async Rust write them."""
    of_lock = names("Lock") - {"protocol"}
    return {f"Lock::{name}" for name in of_lock} | {f"Builder::{name}" for name in of_lock | names("Client")}


def test_rust_driver() -> None:
    """The other drivers convert every option alike."""
    driver = "tests/conformance/drivers/rust/src/perform.rs"
    of_lock = re.findall(r'^ {16}\("(\w+)", ', between(driver, "macro_rules! set {"), re.M)
    assert set(of_lock) == names("Lock")
    of_client = re.findall(r'options\.remove\("(\w+)"\)', between(driver, "macro_rules! set_client {"))
    assert set(of_client) - {"credentials"} == {option.key for option in OPTIONS if option.scope == "Client"}


# --- Python and Node ---


def assert_typed(found: list[tuple[str, str]], expected: Mapping[str, str], types: Mapping[str, str]) -> None:
    """Compares names and types of documented options with the kinds of the expected ones."""
    assert {name for name, _ in found} == set(expected)
    assert [(name, type_) for name, type_ in found if not re.fullmatch(types[expected[name]], type_)] == []


def functions(scope: str) -> dict[str, str]:
    """The option that is a function. The engine's table has only values."""
    return {"credentials": "Function"} if scope == "Client" else {}


def python_members(owner: str) -> list[tuple[str, str]]:
    """The options that stand in a type, with their types."""
    members = between("python/redlock/options.py", f"\nclass {owner}(", "\n\n\n")
    return re.findall(r'^    (\w+): (.+) \| None\n    """', members, re.M)


@pytest.mark.parametrize(
    ("owners", "scope"),
    [(["ElectionOptions", "Options"], "Lock"), (["ClientOptions"], "Client")],
    ids=["lock", "client"],
)
def test_python_options(owners: list[str], scope: str) -> None:
    found = [member for owner in owners for member in python_members(owner)]
    expected = {option.name: option.kind for option in OPTIONS if option.scope == scope}
    assert_typed(found, expected | functions(scope), PYTHON_TYPES | {"Function": "Credentials"})


def test_python_signatures() -> None:
    """Every call takes the options as one type, so a new option does not change any."""
    text = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "python" / "redlock").glob("*.py*"))
    owners = {"Options", "NameOptions", "ClientOptions", "ElectionOptions"}
    owners |= set(re.findall(r"class (\w+)\(NameOptions, total=False\)", text))
    types = {f"Unpack[{owner}]" for owner in owners}
    assert set(re.findall(r"\*\*_?options: (.+?),?\n? *\)", text)) == types


@pytest.mark.parametrize(("owner", "scope"), [("LockOptions", "Lock"), ("ClientOptions extends LockOptions", "Client")])
def test_node_options(owner: str, scope: str) -> None:
    members = between("node/ts/options.ts", f"\nexport interface {owner} {{\n")
    found = re.findall(r"\*/\n  readonly (\w+)\?: (.+) \| null \| undefined;", members)
    expected = {option.camel: option.kind for option in OPTIONS if option.scope == scope}
    assert_typed(found, expected | functions(scope), NODE_TYPES | {"Function": "Credentials"})


def test_election_options() -> None:
    """A candidate waits for ever and is renewed, so an election has some of the options of a lock."""
    setters = re.findall(r"^ {12}(\w+): ", between("core/src/api/setters.rs", "macro_rules! candidate_setters {"), re.M)
    driver = between("tests/conformance/drivers/rust/src/perform.rs", "macro_rules! set_election {")
    python = [name for name, _ in python_members("ElectionOptions")]
    assert set(python) == set(setters) < names("Lock")
    assert set(re.findall(r'^ {16}\("(\w+)", ', driver, re.M)) == set(setters)
    listed = between("node/ts/election.ts", "const OPTIONS = [", "]")
    assert set(re.findall(r'"(\w+)"', listed)) == {option.camel for option in OPTIONS if option.name in setters}


# --- Documentation ---


def test_page_of_the_options() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", read("core/docs/options.md"), re.M)
    assert sorted(name for name, _ in rows) == sorted(option.name for option in OPTIONS)
    assert {name for name, meaning in rows if meaning.startswith("of a client only")} == names("Client")


def test_readme_of_the_node_package() -> None:
    readme = read("node/README.md")
    assert readme == written(readme, read("core/docs/options.md")), "run: python tests setup.node_options"


def test_guide() -> None:
    """The guide for contributors names the test of each place, and only files that exist."""
    guide = read(".github/CONTRIBUTING.md")
    tests = {name for name in globals() if name.startswith("test_")}
    assert set(re.findall(r"`(test_\w+)`", guide)) == tests - {"test_python_signatures", "test_guide"}
    cited = re.findall(r"`((?:core|node|python|tests)/[\w./-]+)(?:::(\w+))?`", guide)
    cited += [(path.removeprefix("../"), "") for path in re.findall(r"\]\((\.\./[\w./-]+)", guide)]
    assert len(cited) > 20
    missing = [path for path, name in cited if not (ROOT / path).exists() or (name and f"fn {name}(" not in read(path))]
    assert missing == []
