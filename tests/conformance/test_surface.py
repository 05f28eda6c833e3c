"""The public names of each language are those of tables/surface.json: none is missing, and there are no others.

core/tests/suite/surface.rs has the Rust names.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Never, get_args, is_typeddict

import pytest
import redlock
import redlock.asyncio
import redlock.errors
import redlock.otel
import redlock.testing

from conformance.conftest import ROOT
from conformance.driver import Json, table

COLUMNS = ["rust", "blocking", "python", "asyncio", "node"]
MODULES = {"python": redlock, "asyncio": redlock.asyncio}
LITERALS = {"level", "lock state", "reason", "state"}
"""Kinds whose names are texts in Python and Node, and not names of a module."""

every_module = pytest.mark.parametrize("column", MODULES)


def names(row: Json, column: str) -> list[str]:
    """The names of a concept: none, one or several."""
    given: str | list[str] | None = row[column]
    return given if isinstance(given, list) else [given] if given else []


def listed(column: str, module: str = "") -> Iterator[tuple[str, Json]]:
    """Every name of a language that is code, with its row: those of the package, or those of a module of its own."""
    for row in table("surface")["cases"]:
        if row["kind"] not in LITERALS:
            for name in names(row, column):
                own = re.match(r"(testing|otel)\.", name)
                if (own[1] if own else "") == module:
                    yield name.removeprefix(f"{module}."), row


def texts(column: str, kind: str) -> set[str]:
    """Every name of a language that is a text."""
    return {name for row in table("surface")["cases"] if row["kind"] == kind for name in names(row, column)}


def tops(column: str, module: str = "") -> set[str]:
    """The names in a language's module."""
    return {name for name, _ in listed(column, module) if re.fullmatch(r"\w+", name)}


def members(column: str, owner: str, module: str = "") -> set[str]:
    """The members of a class or a type; a symbol is in brackets."""
    found = {name for name, _ in listed(column, module) if name.startswith((f"{owner}.", f"{owner}["))}
    return {name.removeprefix(owner).removeprefix(".") for name in found if not name.endswith(")")}


def parameters(column: str) -> dict[str, set[str]]:
    """The optional parameters of each call. Users do not make errors."""
    calls = {
        name: set[str]()
        for name, row in listed(column)
        if row["kind"] in {"class", "function", "method"} and row["group"] != "errors" and not name.endswith(")")
    }
    for name, _ in listed(column):
        if match := re.fullmatch(r"(.+)\((\w+)\)", name):
            calls[match[1]].add(match[2])
    return calls


MADE_ELSEWHERE = {"Election", "Lock"}
"""Classes whose constructors are not for users: a client makes them."""


def of_elections(column: str) -> set[str]:
    """The options that an election has: those with a setter in Rust."""
    rows = [row for row in table("surface")["cases"] if row["kind"] == "option"]
    of_both = [row for row in rows if any(name.startswith("Election::") for name in names(row, "rust"))]
    return {name.partition(".")[2] for row in of_both for name in names(row, column)}


def test_every_difference_has_its_reason() -> None:
    rows, differences = table("surface")["cases"], table("surface")["differences"]
    for row in rows:
        assert ("why" in row) == any(row[column] is None for column in COLUMNS), row
    assert {row["why"] for row in rows if "why" in row} == set(differences)
    concepts = [(row["group"], row["concept"]) for row in rows]
    assert len(set(concepts)) == len(concepts)


def test_errors_are_those_of_their_own_table() -> None:
    errors = table("errors")
    rows = {row["concept"]: row for row in table("surface")["cases"] if row["kind"] == "error"}
    assert list(rows) == [case["code"] for case in errors["cases"]]
    for case in errors["cases"]:
        assert (rows[case["code"]]["python"], rows[case["code"]]["node"]) == (case["python"], case["js"])
    assert [row["concept"] for row in table("surface")["cases"] if row["kind"] == "reason"] == errors["lost_reasons"]


# --- Python ---


def found(module: object, name: str) -> Any:
    """Returns what has this name, as it stands in its class."""
    owner, _, member = re.sub(r"\(.*", "", name).partition(".")
    return inspect.getattr_static(getattr(module, owner), member) if member else getattr(module, owner)


def fits(module: object, name: str, row: Json) -> bool:
    """Whether a name is of its row's kind."""
    kind, (owner, _, member) = row["kind"], name.partition(".")
    if name.endswith(")"):
        return True
    if kind == "option":
        return is_typeddict(getattr(module, owner)) and member in getattr(module, owner).__annotations__
    if kind == "attribute":
        return any(member in inspect.get_annotations(base) for base in getattr(module, owner).__mro__)
    thing = found(module, name)
    checks: dict[str, Callable[[Any], bool]] = {
        "class": inspect.isclass,
        "constant": lambda thing: isinstance(thing, str | redlock.Skipped),
        "error": lambda thing: issubclass(thing, redlock.RedlockError) and thing.code == row["concept"],
        "function": inspect.isfunction,
        "method": lambda thing: inspect.isfunction(thing) or inspect.ismethoddescriptor(thing),
        "property": inspect.isdatadescriptor,
        "type": lambda _: True,
    }
    return checks[kind](thing)


@every_module
def test_python_names_are_of_their_kind(column: str) -> None:
    module = MODULES[column]
    assert [name for name, row in listed(column) if not fits(module, name, row)] == []


@every_module
def test_python_has_nothing_else(column: str) -> None:
    module = MODULES[column]
    assert sorted(module.__all__) == sorted(tops(column))
    for owner in (module.Election, module.Lock, module.Redlock):
        # What only says that the other kind of block is meant is not part of the surface.
        bases = [base for base in owner.__mro__ if base.__module__ != "redlock._checks"]
        special = {name for base in bases for name in vars(base) if re.fullmatch(r"__a?(enter|exit|call)__", name)}
        public = {name for name in dir(owner) if not name.startswith("_")}
        assert public | special == members(column, owner.__name__)
    options = members(column, "Options")
    assert set(redlock.Options.__annotations__) == options
    assert set(redlock.ClientOptions.__annotations__) == options | members(column, "ClientOptions")
    assert set(redlock.NameOptions.__annotations__) == options | members(column, "NameOptions")
    assert set(redlock.ElectionOptions.__annotations__) == of_elections(column)
    values = (redlock.Leader, redlock.Metric, redlock.Point, redlock.Histogram)
    for owner in (redlock.LockView, redlock.NodeView, redlock.Diagnosis, redlock.Finding, *values):
        assert {field.name for field in fields(owner)} == members(column, owner.__name__)
    base = members(column, "RedlockError")
    for name, inherited in (("RedlockError", set[str]()), ("LockLost", base), ("LockInvalidArgument", base)):
        error = getattr(module, name)()
        own = {member for member in {*dir(error)} - {*dir(Exception())} if not member.startswith("_")}
        assert own == members(column, name) | inherited


def test_python_errors_and_modules_have_nothing_else() -> None:
    internal = set(table("surface")["internal"]["python"])
    errors = {name for name, row in listed("python") if row["kind"] == "error"} | {"LostReason", "RedlockError"}
    assert set(redlock.errors.__all__) == errors
    for module, prefix in ((redlock, ""), (redlock.asyncio, "asyncio."), (redlock.errors, "errors.")):
        # An imported name is not part of the surface, though it can be reached.
        own = {
            f"{prefix}{name}"
            for name, thing in vars(module).items()
            if not name.startswith("_")
            and name not in module.__all__
            and (inspect.isfunction(thing) or inspect.isclass(thing))
            and thing.__module__ == module.__name__
        }
        assert own <= internal
    modules = {path.stem for path in Path(redlock.__path__[0]).glob("*.py") if not path.stem.startswith("_")}
    assert modules - {"asyncio", "errors", "otel", "testing"} == {name for name in internal if "." not in name}
    assert all(importlib.import_module(f"redlock.{name}") for name in modules)


def test_python_names_for_tests() -> None:
    assert set(redlock.testing.__all__) == tops("python", "testing") == tops("asyncio", "testing")
    public = {name for name in dir(redlock.testing.MemoryServer) if not name.startswith("_")}
    assert public == members("python", "MemoryServer", "testing")
    for name, row in listed("python", "testing"):
        thing = found(redlock.testing, name)
        is_property = inspect.isgetsetdescriptor(thing)
        assert is_property == (row["kind"] == "property"), name
        assert is_property or callable(thing), name


def test_python_names_for_exporters() -> None:
    assert set(redlock.otel.__all__) == tops("python", "otel") == tops("asyncio", "otel")
    for name, row in listed("python", "otel"):
        assert row["kind"] == "function", name
        assert inspect.isfunction(found(redlock.otel, name)), name


@every_module
def test_python_parameters(column: str) -> None:
    for name, expected in parameters(column).items():
        if name in MADE_ELSEWHERE:
            continue
        every = inspect.signature(found(MODULES[column], name)).parameters.values()
        # A call takes others of type Never only to say what to write instead.
        taken = [p for p in every if p.annotation is not Never]
        # Options are shown one by one, with a default of their own.
        left_out = {"options" if repr(p.default) == "..." else p.name for p in taken if p.default is not p.empty}
        assert left_out == expected, name


@every_module
def test_python_texts(column: str) -> None:
    assert literals(redlock.LostReason) == texts(column, "reason")
    assert literals(redlock.Level) == texts(column, "level")
    for view, kind in ((redlock.LockView, "lock state"), (redlock.NodeView, "state")):
        assert literals(inspect.get_annotations(view, eval_str=True)["state"]) == texts(column, kind)


def literals(annotation: Any) -> set[str]:
    """The texts of a Literal, or of a union of several."""
    return {text for part in get_args(annotation) for text in ([part] if isinstance(part, str) else get_args(part))}


@every_module
def test_what_waits_is_a_coroutine_function(column: str) -> None:
    calls = [(name, row) for name, row in listed(column) if row["kind"] in {"function", "method"} and name[-1] != ")"]
    waiting = {name for name, _ in calls if inspect.iscoroutinefunction(found(MODULES[column], name))}
    assert waiting == {name for name, row in calls if column in row.get("awaits", [])}


# --- Node ---


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A directory with the package installed, as a user has it."""
    modules = ROOT / "node" / "node_modules"
    if not (ROOT / "node" / "lib" / "index.d.ts").exists() or not modules.exists():
        pytest.fail("the Node package is not built: `npm ci && npm run build` in node/", pytrace=False)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "redlock-rs").symlink_to(ROOT / "node")
    (tmp_path / "node_modules" / "@types").symlink_to(modules / "@types")
    return tmp_path


def union(given: set[str]) -> str:
    """A type of these texts, or symbols."""
    return " | ".join(sorted(f"typeof {n[1:-1]}" if n.startswith("[") else json.dumps(n) for n in given)) or "never"


def of(name: str) -> str:
    """The type of the value with this name."""
    owner, symbol, member = re.fullmatch(r"(\w+)(?:\[(.*)\]|\.(.*))?", name).groups()  # type: ignore[union-attr]
    if member or symbol:
        return f"api.{owner}[{json.dumps(member) if member else f'typeof {symbol}'}]"
    return f"typeof api.{owner}"


@cache
def program() -> str:
    """TypeScript that compiles if every name exists with its kind, and no member is unlisted."""
    lines = [
        'import * as api from "redlock-rs";',
        'import * as testing from "redlock-rs/testing";',
        f"true satisfies Same<keyof typeof testing, {union(tops('node', 'testing'))}>;",
        f"true satisfies Same<keyof testing.MemoryServer, {union(members('node', 'MemoryServer', 'testing'))}>;",
        "type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : [A, B]) : [A, B];",
        "type Keys<T> = T extends unknown ? keyof T : never;",
        "type LeftOut<P> = P extends [] ? [] : P extends [unknown, ...infer R] ? LeftOut<R> : Required<P & unknown[]>;",
        "type Result<R> = R extends Promise<unknown> ? 'awaits' : 'call';",
        "type Is<T> = T extends (...given: never) => infer R ? Result<R> : 'value';",
        f"true satisfies Same<api.LostReason, {union(texts('node', 'reason'))}>;",
        f"true satisfies Same<api.LockView['state'], {union(texts('node', 'lock state'))}>;",
        f"true satisfies Same<api.NodeView['state'], {union(texts('node', 'state'))}>;",
        f"true satisfies Same<api.Level, {union(texts('node', 'level'))}>;",
        f"true satisfies Same<api.ErrorCode, {union({case['code'] for case in table('errors')['cases']})}>;",
    ]
    values: set[str] = set()
    for name, row in listed("node"):
        kind = row["kind"]
        top = re.fullmatch(r"\w+", name)
        if top and kind in {"class", "error", "function"}:
            values.add(name)
        if kind in {"class", "error"}:
            lines.append(f"true satisfies api.{name} extends object ? true : never;")
        elif kind in {"function", "method"}:
            lines.append(f"'{'awaits' if 'node' in row.get('awaits', []) else 'call'}' satisfies Is<{of(name)}>;")
        elif kind in {"property", "attribute"} and not name.startswith("NodeView."):
            lines.append(f"'value' satisfies Is<{of(name)}>;")
        elif kind == "type" and top:
            lines.append(f"null! as api.{name};")
    lines.append(f"true satisfies Same<keyof typeof api, {union(values)}>;")
    for owner in [
        "AcquireOptions",
        "Diagnosis",
        "Election",
        "ErrorDetails",
        "Finding",
        "Histogram",
        "Leader",
        "Lock",
        "LockOptions",
        "LockView",
        "Metric",
        "NodeAnswer",
        "NodeView",
        "Point",
        "Redlock",
        "RedlockEvent",
        "TryOptions",
    ]:
        lines.append(f"true satisfies Same<Keys<api.{owner}>, {union(members('node', owner))}>;")
    lines.append(f"true satisfies Same<keyof api.ElectionOptions, {union(of_elections('node'))}>;")
    for owner in ("ClientOptions", "LockedOptions", "NameOptions"):
        inherited = members("node", "NameOptions") if owner == "LockedOptions" else set()
        own = union(members("node", "LockOptions") | inherited | members("node", owner))
        lines.append(f"true satisfies Same<keyof api.{owner}, {own}>;")
    base = members("node", "RedlockError")
    for error in sorted(texts("node", "error") | {"RedlockError"}):
        own = union(base | members("node", error))
        lines.append(f"true satisfies Same<Exclude<keyof api.{error}, keyof Error>, {own}>;")
    for name, given in parameters("node").items():
        if name in MADE_ELSEWHERE:
            continue
        taken = "ConstructorParameters" if name == "Redlock" else "Parameters"
        lines.append(f"true satisfies Same<LeftOut<{taken}<{of(name)}>>['length'], {len(given)}>;")
    return "\n".join(lines) + "\n"


def test_node_types(package: Path) -> None:
    (package / "surface.mts").write_text(program(), encoding="utf-8")
    compiler = ROOT / "node" / "node_modules" / ".bin" / "tsc"
    options = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "--types", "node"]
    options += ["--lib", "es2023,esnext.disposable"]
    result = subprocess.run(
        [str(compiler), *options, "surface.mts"], cwd=package, capture_output=True, text=True, check=False
    )
    wrong = [program().splitlines()[int(line) - 1] for line in re.findall(r"surface\.mts\((\d+),", result.stdout)]
    assert result.returncode == 0, "\n".join([result.stdout, result.stderr, *wrong])


@pytest.mark.parametrize(("file", "module"), [("index", ""), ("otel", "otel"), ("testing", "testing")])
def test_node_exports_no_other_name(package: Path, file: str, module: str) -> None:
    # Types leave no trace at run time, and TypeScript cannot list those of a module.
    declared = (package / "node_modules" / "redlock-rs" / "lib" / f"{file}.d.ts").read_text(encoding="utf-8")
    exported = re.findall(r"^export (?:declare \w+|interface) (\w+)", declared, re.M)
    for group in re.findall(r"^export (?:type )?\{(.*?)\}", declared, re.M | re.S):
        exported += [entry.split()[-1] for entry in group.split(",") if entry.strip()]
    assert "export *" not in declared
    assert sorted(exported) == sorted(tops("node", module))


def path(owner: str, member: str) -> str:
    """The table's spelling of a member."""
    return f"{owner}{member}" if member.startswith("[") else f"{owner}.{member}"


LOOK = """
const api = await import("redlock-rs");
const required = (await import("node:module")).createRequire(import.meta.url)("redlock-rs");
const symbol = ({ description }) => `[${description.replace(/^nodejs\\.(?!util)/, "Symbol.")}]`;
const shown = (key) => (typeof key === "symbol" ? symbol(key) : key);
const own = (thing) => Reflect.ownKeys(thing).map(shown);
const kind = (thing) => (/^class\\b/.test(String(thing)) ? "class" : typeof thing);
const found = { module: {}, required: own(required), classes: {}, statics: {}, errors: {} };
for (const [name, thing] of Object.entries(api)) {
  found.module[name] = kind(thing);
  if (kind(thing) !== "class") continue;
  found.classes[name] = own(thing.prototype);
  found.statics[name] = own(thing);
  if (!(thing.prototype instanceof Error)) continue;
  const error = new thing("made here", { reason: "taken" });
  found.errors[name] = { keys: own(error), code: error.code };
}
console.log(JSON.stringify(found));
"""


def test_node_at_run_time(package: Path) -> None:
    (package / "look.mjs").write_text(LOOK, encoding="utf-8")
    result = subprocess.run(["node", "look.mjs"], cwd=package, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    seen = json.loads(result.stdout)
    # The mark of a CommonJS module that was an ES module in its source.
    technical = {"__esModule"}
    values = {name: "class" for name, row in listed("node") if row["kind"] in {"class", "error"}}
    values |= {name: "function" for name, row in listed("node") if row["kind"] == "function"}
    assert {name: kind for name, kind in seen["module"].items() if name not in technical} == values
    assert set(seen["required"]) - technical == set(values)

    internal = set(table("surface")["internal"]["node"])
    for owner in ("Election", "Lock", "Redlock"):
        here, expected = set(seen["classes"][owner]), members("node", owner)
        assert expected <= here
        assert {path(owner, name) for name in here - expected - {"constructor"}} <= internal
        assert {path(owner, name) for name in set(seen["statics"][owner]) - {"length", "name", "prototype"}} <= internal
    base = members("node", "RedlockError")
    for name, error in seen["errors"].items():
        if name != "RedlockError":
            own = set(error["keys"]) | set(seen["classes"]["RedlockError"]) | set(seen["classes"][name])
            assert own - {"stack", "message", "cause", "constructor", "name"} == base | members("node", name), name
    codes = {row["node"]: row["concept"] for row in table("surface")["cases"] if row["kind"] == "error"}
    assert {name: error["code"] for name, error in seen["errors"].items() if name in codes} == codes
