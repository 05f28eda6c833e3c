"""The threads that call the functions of the client option `credentials`.

One thread of a client waits for calls. While it serves one, a second thread stands by: it serves the next call if the
engine gives up the first. There are never more than two; see python/src/credentials.rs. They end when the client and
its locks are gone. They are real threads, because a function may block its thread, and so all greenlets of that thread.
The coroutines of one thread share an event loop, so a function may keep a session for all its calls.

What may interrupt a call: the end of the interpreter, in which the thread never comes back to Python.
"""

import _thread
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import redlock._native as _native  # noqa: PLR0402 - so the error says what is missing if it is

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class _Loop:
    """An event loop that begins with the first coroutine. Functions without coroutines do not need asyncio."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def result(self, awaitable: Awaitable[T]) -> T:
        """Wait for a coroutine."""
        if self._runner is None:
            import asyncio  # noqa: PLC0415

            self._runner = asyncio.Runner()
        return self._runner.run(_awaited(awaitable))

    def close(self) -> None:
        """Cancel the tasks that coroutines have left behind, and close the loop."""
        if self._runner is not None:
            self._runner.close()


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _real_start() -> Callable[..., Any]:
    """Find the function that starts a real thread, also if gevent or eventlet has put another one in its place."""
    if _thread.start_new_thread.__module__ == _thread.__name__:
        return _thread.start_new_thread
    import importlib.util  # noqa: PLC0415 - few programs need it

    # The same module once more, with its own functions.
    spec: Any = importlib.util.find_spec("_thread")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    start: Callable[..., Any] = module.start_new_thread
    return start


start_new_thread = _real_start()
"""The native half calls it with `begin`, and runs no other code of Python on the thread of a caller: that thread may be
a daemon, and end there together with the interpreter."""


def begin(thread: _native.CredentialsThread) -> None:
    """Run a new thread, whose native half is given."""
    if _thread.start_new_thread is not start_new_thread:
        # A `Thread` would be a greenlet.
        _run(thread)
        return
    # This one has a name, and other modules know it. The interpreter may be ending and start no more; then calls fail.
    with contextlib.suppress(RuntimeError):
        threading.Thread(target=_run, args=(thread,), name="redlock-credentials", daemon=True).start()


def _run(thread: _native.CredentialsThread) -> None:
    with contextlib.closing(_Loop()) as loop:
        while _serve(thread, loop):
            pass


def _serve(thread: _native.CredentialsThread, loop: _Loop) -> bool:
    """Serve one call. Return `False` if there are no more."""
    function = thread.take()
    if function is None:
        return False
    other = thread.stand_by()
    if other is not None:
        # Without it, the next call has to wait for this one.
        with contextlib.suppress(RuntimeError):
            start_new_thread(begin, (other,))
        del other
    try:
        returned: object = function()
        if inspect.isawaitable(returned):
            returned = loop.result(returned)
    except BaseException as error:  # noqa: BLE001 - an exception must not stop the thread
        thread.fail(error)
    else:
        thread.answer(returned)
    return True
