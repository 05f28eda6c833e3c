import builtins
import copy
import json
import pickle
from pathlib import Path
from typing import Any, get_args

import pytest
from conftest import Run

import redlock
from redlock import asyncio as aio
from redlock import errors

TABLE: dict[str, Any] = json.loads((Path(__file__).parents[2] / "tests/conformance/tables/errors.json").read_text())


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["code"])
def test_one_class_for_each_code(case: dict[str, Any]) -> None:
    error: type[redlock.RedlockError] = getattr(redlock, case["python"])
    assert issubclass(error, redlock.RedlockError)
    assert (error.code, error.retryable) == (case["code"], case["retryable"])
    if case["python_base"] is not None:
        assert issubclass(error, getattr(builtins, case["python_base"]))


def test_no_class_without_a_code_and_no_reason_left_out() -> None:
    assert {error.code for error in redlock.RedlockError.__subclasses__()} == {case["code"] for case in TABLE["cases"]}
    assert [get_args(reason)[0] for reason in get_args(errors.LostReason)] == TABLE["lost_reasons"]


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["code"])
def test_errors_can_be_sent(case: dict[str, Any]) -> None:
    holder = {"holder_label": "label", "holder_ttl_left": 1.5, "held_by_this_process": True}
    of_code: dict[str, dict[str, Any]] = {
        "timeout": holder,
        "lost": {"reason": "taken"},
        "invalid_argument": {"option": "ttl"},
    }
    own = of_code.get(case["code"], {})
    error = errors.of_code(case["code"], "what happened", name="foo", nodes=(("node", "answer"),), **own)
    of_celery = type(error)(*json.loads(json.dumps(error.args)))
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), of_celery):
        assert type(again) is type(error)
        assert (str(again), again.args) == ("what happened", error.args)
        assert vars(again) == vars(error) == {"name": "foo", "nodes": (("node", "answer"),), **own}


def test_a_code_of_a_later_engine_is_an_error_all_the_same() -> None:
    assert type(errors.of_code("later", "message", name=None, nodes=())) is redlock.RedlockError


def test_what_the_system_said_is_the_cause(run: Run) -> None:
    program = """
import os, resource, traceback
# No descriptor is left for the call.
resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0), 4096))
try:
    try:
        raise KeyError
    finally:
        client.lock(name).acquire()
except redlock.LockUnavailable as error:
    print(isinstance(error.__cause__, OSError), "KeyError" in traceback.format_exc())
"""
    assert run(program).stdout == "True True\n"


@pytest.mark.parametrize("face", [redlock, aio])
async def test_what_is_being_handled_is_the_context(face: Any, name: str) -> None:
    lock = face.Redlock("memory://context").lock(name)
    with pytest.raises(redlock.LockNotHeld) as raised:
        try:
            raise KeyError
        finally:
            released = lock.release()
            if face is aio:
                await released
    assert isinstance(raised.value.__context__, KeyError)
    assert not raised.value.__suppress_context__, "the traceback shows it"
