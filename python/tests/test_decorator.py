# A lambda cannot say what it takes.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import asyncio
import contextlib
import copy
import functools
import inspect
import pickle
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, NoReturn, Optional
from unittest import mock

import pytest
from server import LIMIT, Server
from support.clock import until
from typing_extensions import TypeAliasType

import redlock
from redlock import asyncio as aio


def test_each_call_has_a_lock_of_its_own(client: redlock.Redlock, server: Server, name: str) -> None:
    @client.lock(name)
    def work(amount: int, *, more: int = 0) -> int:
        """Work."""
        assert server.has(name)
        return amount + more

    assert work(1, more=2) == 3
    assert (work.__name__, work.__doc__) == ("work", "Work.")
    assert not server.has(name)


@pytest.mark.parametrize("face", [redlock, aio])
async def test_a_subclass_with_another_constructor_decorates(face: Any, name: str) -> None:
    client, entered = face.Redlock("memory://subclass"), list[str]()
    base: Any = face.Lock

    class Coloured(base):  # type: ignore[misc]
        def __new__(cls, colour: str) -> Any:  # noqa: ARG004 - `__init__` uses it
            return super().__new__(cls, client, name)

        def __init__(self, colour: str) -> None:
            super().__init__(*[client] if face is aio else [])
            self.colour = colour

        def __enter__(self) -> Any:
            entered.append(self.colour)
            return super().__enter__()

        async def __aenter__(self) -> Any:
            entered.append(self.colour)
            return await super().__aenter__()

    if face is aio:
        await Coloured("blue")(coroutine)()
    else:
        Coloured("blue")(plain)()
    assert entered == ["blue"]


class Caller:
    func = None
    """As decorators that are classes keep what they decorate."""

    async def __call__(self) -> None: ...


async def coroutine() -> None: ...


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def plain() -> None: ...


REFUSED = {redlock: [coroutine, generator, async_generator, Caller(), 3], aio: [plain, generator, async_generator, 3]}


@pytest.mark.parametrize("face", [redlock, aio])
def test_what_a_lock_refuses(face: Any) -> None:
    for function in REFUSED[face]:
        with pytest.raises(TypeError, match="asyncio" if face is aio else "redlock"):
            face.lock("foo")(function)


def hidden(function: Callable[[], object]) -> Callable[[], object]:
    """The same function behind a decorator."""

    @functools.wraps(function)
    def call() -> object:
        return function()

    return call


@pytest.mark.parametrize(
    "function",
    [
        *map(hidden, (coroutine, generator, async_generator)),
        hidden(contextlib.contextmanager(generator)),
        contextlib.asynccontextmanager(async_generator),
    ],
)
def test_a_call_whose_body_has_not_run_is_refused(
    client: redlock.Redlock, server: Server, name: str, function: Any
) -> None:
    for decorate in (client.lock(name), client.locked(name)):
        with pytest.raises(TypeError, match="redlock"):
            decorate(function)()
        assert not server.has(name)


def test_lock_makes_only_locks(client: redlock.Redlock, aclient: aio.Redlock) -> None:
    makers: list[Any] = [client.lock, aclient.lock, redlock.lock, aio.lock, client.lock_all, aio.lock_all]
    for make in makers:
        for option in ("skip_if_held", "pass_lock"):
            with pytest.raises(redlock.LockInvalidArgument, match="locked"):
                make("foo" if "all" not in make.__name__ else ["foo"], **{option: True})
        with pytest.raises(redlock.LockInvalidArgument, match=r"names? "):
            make(lambda: "foo")
    with pytest.raises(redlock.LockInvalidArgument, match="use locked"):
        redlock.lock(lambda: "foo")  # type: ignore[arg-type]


async def test_callbacks_of_a_lock_that_decorates_stay(
    client: redlock.Redlock, aclient: aio.Redlock, name: str
) -> None:
    told: list[redlock.LockLost] = []
    # A blocking call that needs a second try would warn of the loop.
    options: redlock.Options = {"ttl": 1, "node_timeout": 0.9, "auto_renew": False}
    lock, alock = client.lock(name, **options), aclient.lock(name, **options)
    lock.on_lost(told.append)
    alock.on_lost(told.append)

    @lock
    def work() -> None:
        until(lambda: told)

    @alock
    async def awork() -> None:
        await asyncio.sleep(LIMIT)

    with pytest.raises(redlock.LockLost):
        work()
    with pytest.raises(redlock.LockLost):
        await awork()
    assert len(told) == 2


# --- locked: the name ---


@pytest.mark.parametrize("face", [redlock, aio])
def test_a_template_is_filled_in_with_the_arguments(face: Any) -> None:
    class Order:
        number = 17

    def order(order: Order, amount: float = 2.5, *rest: int, by: str = "ada") -> tuple[Any, ...]:
        return order, amount, rest, by

    def work(lock: Any, order: Order, amount: float = 2.5, *rest: int, by: str = "ada") -> tuple[Any, ...]:
        return (lock.name, order, amount, rest, by)

    async def awork(lock: Any, order: Order, amount: float = 2.5, *rest: int, by: str = "ada") -> tuple[Any, ...]:
        return work(lock, order, amount, *rest, by=by)

    def name_of(template: str, *args: object, **kwargs: object) -> object:
        call = face.Redlock("memory://templates").locked(template, pass_lock=True)(work if face is redlock else awork)
        assert inspect.signature(call) == inspect.signature(order)
        returned = asyncio.run(call(*args, **kwargs)) if face is aio else call(*args, **kwargs)
        assert returned[1:] == order(*args, **kwargs)  # type: ignore[arg-type]
        return returned[0]

    assert name_of("o:{order.number}", Order()) == "o:17"
    assert name_of("{by}:{amount:05.1f}", Order()) == "ada:002.5"
    assert name_of("{by!r}:{amount:{rest[0]}}", Order(), 3.0, 6) == "'ada':   3.0"
    assert name_of("{{{order.number}}}:x", order=Order()) == "{17}:x", "the hash tag of a cluster"
    assert name_of("{{tag}}:x", Order()) == "{tag}:x"
    assert name_of("{by}", Order(), by="{amount}") == "{amount}", "an argument is not a template"


@pytest.mark.parametrize("template", ["o:{order}", "o:{}", "o:{0}", "o:{order.id}", "o:{amount:{order}}", "{", "}"])
@pytest.mark.parametrize("face", [redlock, aio])
def test_a_template_that_no_call_can_fill_in_is_refused_at_the_decorator(face: Any, template: str) -> None:
    def work(amount: int) -> None: ...

    async def awork(amount: int) -> None: ...

    with pytest.raises(redlock.LockInvalidArgument, match="for braces in the name itself, write") as refused:
        face.locked(template)(work if face is redlock else awork)
    assert refused.value.option == "name"
    if "order" in template:
        assert "{order}, but" in str(refused.value)
        assert "work has only the parameters amount" in str(refused.value)


def test_a_name_function_gets_what_it_has_parameters_for(client: redlock.Redlock) -> None:
    def name_of(make: Any, *args: Any, **kwargs: Any) -> object:
        @client.locked(make, pass_lock=True)
        def work(lock: Any, /, user: Any, amount: Any = 1, *rest: Any, **more: Any) -> tuple[Any, ...]:
            return lock.name, user, amount, rest, more

        call: Any = work
        return call(*args, **kwargs)[0]

    assert name_of(lambda user, /: user, "ada") == "ada"
    assert name_of(lambda user, region="eu": f"{user}@{region}", "ada") == "ada@eu"
    assert name_of(lambda user, **others: f"{user}{others}", "ada", 2) == "ada{'amount': 2, 'rest': (), 'more': {}}"
    assert name_of(lambda *rest: f"{rest}", "ada", 2, 3, 4) == "(3, 4)"
    assert name_of(lambda *args, **kwargs: f"{args}{kwargs}", "ada", more=2) == "('ada',){'more': 2}"
    assert name_of(str, "ada") == "ada"


def test_a_name_function_that_no_call_can_use_is_refused_at_the_decorator(client: redlock.Redlock) -> None:
    def key(order: str) -> str:
        return order

    def work(lock: redlock.Lock, amount: int) -> None: ...

    with pytest.raises(
        redlock.LockInvalidArgument, match=r"key has the parameter 'order', but .*work has only.* amount$"
    ):
        client.locked(key, pass_lock=True)(work)
    with pytest.raises(redlock.LockInvalidArgument, match=r"plain has no parameters$"):
        client.locked(key)(plain)


@pytest.mark.parametrize("made", [1, None, "", "n" * 513, "redlock:fence:x"])
def test_a_wrong_name_is_refused_at_the_call(client: redlock.Redlock, made: Any) -> None:
    @client.locked(lambda: made)
    def work() -> NoReturn:
        pytest.fail("it ran")

    with pytest.raises(redlock.LockInvalidArgument, match="name"):
        work()


@pytest.mark.parametrize("face", [redlock, aio])
def test_wrong_options_are_refused_at_the_decorator(face: Any) -> None:
    client = face.Redlock("memory://decorator")
    with pytest.raises(redlock.LockInvalidArgument, match="ttl"):
        client.locked(lambda: "name", ttl="long")
    with pytest.raises(redlock.LockInvalidArgument, match="tll"):
        client.locked("name", skip_if_held=True, tll=3)
    for wrong in ("", 3, None, [], ["a", ""]):
        with pytest.raises(redlock.LockInvalidArgument, match="name"):
            client.locked(wrong, pass_lock=True)
    with pytest.raises(redlock.LockInvalidArgument, match="permits"):
        client.locked("{name}", permits=1_001)
    with pytest.raises(redlock.LockInvalidArgument, match="at_least"):
        client.locked(["a:{x}", "b:{x}"], at_least=1)


# --- locked: calls that are skipped ---


def test_a_call_is_skipped_if_others_hold_the_lock(client: redlock.Redlock, name: str) -> None:
    @client.locked(name, skip_if_held=True)
    def nightly(amount: int) -> int:
        return amount

    assert nightly(1) == 1
    with client.lock(name):
        assert nightly(2) is redlock.SKIPPED
    assert nightly(3) == 3


def test_the_marker_of_a_skipped_call() -> None:
    assert (repr(redlock.SKIPPED), bool(redlock.SKIPPED)) == ("redlock.SKIPPED", False)
    assert redlock.SKIPPED is aio.SKIPPED
    assert copy.deepcopy(redlock.SKIPPED) is redlock.SKIPPED
    assert pickle.loads(pickle.dumps(redlock.SKIPPED)) is redlock.SKIPPED
    assert list(redlock.Skipped) == [redlock.SKIPPED]


def test_a_timeout_of_the_body_is_not_a_skip(client: redlock.Redlock, name: str) -> None:
    @client.locked(name, skip_if_held=True)
    def outer() -> None:
        with client.lock(f"{name}-inner", timeout=0):
            pytest.fail("it is held")

    with client.lock(f"{name}-inner"), pytest.raises(redlock.LockTimeout):
        outer()


def test_an_unreachable_server_is_not_a_skip() -> None:
    @redlock.Redlock("unix:///nowhere/at/all").locked("job", skip_if_held=True)
    def work() -> NoReturn:
        pytest.fail("it ran")

    with pytest.raises(redlock.LockUnavailable):
        work()


# --- locked: the lock of the call ---


def test_the_lock_is_passed(client: redlock.Redlock, name: str) -> None:
    @client.locked(name, pass_lock=True)
    def first(lock: redlock.Lock, amount: int) -> tuple[int, int]:
        assert lock.held
        return lock.fence, amount

    @client.locked(lambda amount: f"{name}:{amount}", skip_if_held=True, pass_lock=True)
    def both(lock: redlock.Lock, amount: int) -> tuple[object, int]:
        return lock.name, amount

    (fence, amount), (later, _) = first(1), first(amount=2)
    assert (fence < later, amount) == (True, 1)
    assert both(3) == (f"{name}:3", 3)
    assert list(inspect.signature(first).parameters) == ["amount"]
    # What a framework reads as annotations stays that of the rest.
    assert inspect.signature(both).parameters["amount"].annotation is int


def test_methods_and_bound_tasks_get_the_lock_after_their_object(client: redlock.Redlock, name: str) -> None:
    class Account:
        number = 7

        @client.locked(lambda self: f"{name}:{self.number}", pass_lock=True)
        def close(self, held: redlock.Lock, force: bool) -> tuple[object, bool]:
            return held.name, force

        @classmethod
        @client.locked(name, pass_lock=True)
        def find(cls, lock: redlock.Lock) -> tuple[str, bool]:
            return cls.__name__, lock.held

    @client.locked(name, pass_lock=True)
    def bound(task: str, held: redlock.Lock, amount: int) -> tuple[str, bool, int]:
        return task, held.held, amount

    assert Account().close(True) == (f"{name}:7", True)
    assert Account().close(force=False) == (f"{name}:7", False)
    assert list(inspect.signature(Account.close).parameters) == ["self", "force"]
    assert Account.find() == ("Account", True)
    assert bound("task", 2) == ("task", True, 2)
    by_keyword: Any = bound
    assert by_keyword(task="task", amount=2) == ("task", True, 2)


def test_the_parameter_of_the_lock(client: redlock.Redlock, name: str) -> None:
    """Its annotation comes before its name, and both before its place."""
    unannotated: Any = lambda self, l, more=0: (self, l.held, more)  # noqa: E731, E741
    by_name: Any = lambda task, lock, more=0: (task, lock.held, more)  # noqa: E731
    anything: Any = lambda *args: (args[1], args[0].held, *args[2:])  # noqa: E731
    decorate: Any = client.locked(name, pass_lock=True)
    for function in (unannotated, by_name, anything):
        assert decorate(function)(1, 2) == (1, True, 2)

    def by_text(amount: int, lock: str = "", *, held: "redlock.Lock | None" = None) -> tuple[int, str, bool]:
        return amount, lock, held is not None and held.held

    def other(lock: redlock.Lock, alock: aio.Lock | None = None) -> tuple[bool, object]:
        return lock.held, alock

    def unknown(first: "NotImported", amount: int = 1) -> tuple[bool, int]:  # type: ignore[name-defined]  # noqa: F821
        return first.held, amount

    assert decorate(by_text)(1, lock="yes") == (1, "yes", True)
    assert decorate(other)() == (True, None)

    def another(mutex: "not_imported.Lock", lock: Any) -> tuple[object, bool]:  # type: ignore[name-defined]  # noqa: F821
        return mutex, lock.held

    assert decorate(unknown)(2) == (True, 2)
    assert decorate(another)(1) == (1, True)
    assert list(inspect.signature(decorate(by_text)).parameters) == ["amount", "lock"]


HELD = "redlock.Lock"


@pytest.mark.parametrize(
    "annotation",
    [
        "redlock.Lock",
        "'redlock.Lock'",
        "HELD",
        "Lock",
        "'not_imported.Lock' | None",
        Annotated[redlock.Lock, "mine"],
        TypeAliasType("Held", "redlock.Lock | None"),
        Optional["redlock.Lock"],
    ],
)
def test_an_annotation_that_asks_for_the_lock(client: redlock.Redlock, name: str, annotation: object) -> None:
    def work(user: Annotated["NotImported | str", "Lock"], held: Any) -> tuple[Any, bool]:  # type: ignore[name-defined]  # noqa: F821
        return user, held.held

    work.__annotations__["held"] = annotation
    decorate: Any = client.locked(name, pass_lock=True)
    assert decorate(work)("ada") == ("ada", True)


def test_an_annotation_that_may_ask_for_the_lock_is_refused(client: redlock.Redlock) -> None:
    def work(user: str, held: "NotImported | None") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match=r"annotation of held in .*work .* call the parameter of the lock `lock`"):
        client.locked("foo", pass_lock=True)(work)


def test_annotations_may_name_what_only_type_checkers_import(client: redlock.Redlock, name: str) -> None:
    """Python evaluates them when the function is defined, or never, or since 3.14 when they are asked for."""
    late = sys.version_info >= (3, 14)
    program = (
        ("" if late else "from __future__ import annotations")
        + """
@client.locked(name + ":{user}")
def plain(user: User) -> Order:
    return user

@client.locked(lambda user: name + user, pass_lock=True)
def one(user: User, held: Lock) -> tuple[User, bool]:
    return user, held.held

@client.locked(name, pass_lock=True)
def either(user: User, held: redlock.Lock | Order | None = None) -> tuple[User, bool]:
    return user, held is not None and held.held
"""
    )
    names: dict[str, Any] = {"client": client, "name": name, "redlock": redlock}
    exec(program, names)
    assert names["plain"]("ada") == "ada"
    assert names["one"]("ada") == names["either"]("ada") == ("ada", True)


@pytest.mark.parametrize("function", [lambda: 1, lambda **more: more, lambda self: self])
def test_pass_lock_needs_a_parameter(client: redlock.Redlock, function: Any) -> None:
    with pytest.raises(TypeError, match=r"<lambda> has no parameter that pass_lock could give the lock to"):
        client.locked("foo", pass_lock=True)(function)


@pytest.mark.parametrize("face", [redlock, aio])
def test_a_bare_decorator_says_what_to_write(face: Any) -> None:
    bare = face.locked(plain)
    for given, others in (((), {}), ((1,), {}), ((1, 2), {}), ((), {"amount": 1})):
        with pytest.raises(TypeError, match=r'write @redlock\.locked\("name"\)'):
            bare(*given, **others)


@pytest.mark.parametrize("kind", [classmethod, staticmethod, property])
def test_what_wraps_a_method_comes_above_the_decorator(client: redlock.Redlock, kind: Any) -> None:
    with pytest.raises(TypeError, match=f"write @{kind.__name__} above"):
        client.locked("foo")(kind(plain))


async def test_decorators_of_coroutine_functions(aclient: aio.Redlock, server: Server, name: str) -> None:
    skipped = asyncio.Event()

    @aclient.locked(name + ":{user}", skip_if_held=True, pass_lock=True)
    async def pay(lock: aio.Lock, user: str) -> str:
        assert lock.held
        await skipped.wait()
        return user

    class Account:
        @aclient.locked(name, pass_lock=True)
        async def close(self, lock: aio.Lock, amount: int) -> tuple[int, bool]:
            return amount, lock.held

    calls = [asyncio.create_task(pay(user)) for user in ("ada", "ada", "bob")]
    done, _ = await asyncio.wait(calls, timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
    assert [call.result() for call in done] == [redlock.SKIPPED]
    skipped.set()
    assert sorted(await asyncio.gather(*calls), key=str) == [redlock.SKIPPED, "ada", "bob"]
    assert await Account().close(1) == (1, True)
    assert inspect.iscoroutinefunction(pay)
    await aclient.lock(name)(Caller())()
    await aclient.locked(name)(functools.partial(mock.AsyncMock()))()
    assert not server.has(name)


# --- several names, and permits ---


def test_each_call_has_all_names(client: redlock.Redlock, server: Server, name: str) -> None:
    first, second = f"{name}-1", f"{name}-2"

    @client.lock_all([first, second])
    def work(amount: int) -> int:
        assert server.has(first)
        assert server.has(second)
        return amount

    # They can be taken once, and serve every call.
    @client.locked((each for each in (name + "-{one}", second.encode())), pass_lock=True)
    def by_template(lock: redlock.Lock, one: int) -> tuple[str | bytes, ...]:
        assert one == 1
        return lock.names

    assert work(1) == work(amount=1) == 1
    assert by_template(1) == by_template(1) == (first, second.encode())
    assert not server.has(first)


def test_a_decorated_function_has_a_permit(client: redlock.Redlock, name: str) -> None:
    @client.locked(name + ":{tenant}", permits=1, skip_if_held=True, pass_lock=True)
    def by_tenant(lock: redlock.Lock, tenant: str) -> int | None:
        inner = by_tenant(tenant)
        return lock.slot if inner is redlock.SKIPPED else pytest.fail("it has one permit")

    assert by_tenant("ada") == 0
