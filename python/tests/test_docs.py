"""Every example in the documentation runs, and the stub has the docstrings of the engine."""

import ast
import doctest
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import redlock
from redlock import _default, _native, blocking, errors, inspection, leadership, metrics, options, otel
from redlock import asyncio as aio

STUB = ast.parse(Path(redlock.__file__).with_name("_native.pyi").read_text())
DOCUMENTED = [
    (owner.name, member.name, text)
    for owner in STUB.body
    if isinstance(owner, ast.ClassDef)
    for member in owner.body
    if isinstance(member, ast.FunctionDef) and (text := ast.get_docstring(member)) is not None
]


@pytest.fixture(autouse=True)
def _memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples use the default client; here it has no server."""
    monkeypatch.setenv("REDLOCK_URLS", "memory://docs")
    monkeypatch.setattr(_default, "_defaults", _default.Defaults({}, None, {}))


MODULES = [redlock, blocking, aio, errors, inspection, leadership, metrics, options, otel]


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_examples(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


def test_examples_of_a_class_that_is_defined_elsewhere() -> None:
    examples = [test for test in doctest.DocTestFinder().find(aio.Lock, module=False, globs={}) if test.examples]
    assert len(examples) > 4
    for test in examples:
        assert doctest.DocTestRunner().run(test).failed == 0, test.name


@pytest.mark.parametrize(("owner", "member", "text"), DOCUMENTED, ids=lambda value: str(value)[:20])
def test_the_stub(owner: str, member: str, text: str) -> None:
    assert inspect.getdoc(getattr(getattr(_native, owner), member)) == text
    example = doctest.DocTestParser().get_doctest(text, {}, f"{owner}.{member}", None, None)
    assert doctest.DocTestRunner().run(example).failed == 0
