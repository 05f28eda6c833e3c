"""A program that does nothing but take one lock, as short as its library lets it be. Says in JSON when it got how far.

python cold.py redis-py redis://127.0.0.1:6379
"""

import time

begun_ns = time.monotonic_ns()

import sys  # noqa: E402

SYNC = """
{imports}
imported_ns = time.monotonic_ns()
lock = {lock}
lock.acquire()
told()
lock.release()
"""

ASYNC = """
import asyncio
{imports}
imported_ns = time.monotonic_ns()

async def main():
    lock = {lock}
    await lock.acquire()
    told()
    await lock.release()

asyncio.run(main())
"""

PROGRAMS = {
    "python-sync": (SYNC, "import redlock", "redlock.Redlock(url, ttl=10).lock(name)"),
    "python-asyncio": (ASYNC, "import redlock.asyncio", "redlock.asyncio.Redlock(url, ttl=10).lock(name)"),
    "redis-py": (SYNC, "import redis", "redis.Redis.from_url(url).lock(name, timeout=10)"),
    "redis-py-asyncio": (ASYNC, "import redis.asyncio", "redis.asyncio.Redis.from_url(url).lock(name, timeout=10)"),
    "pottery": (
        SYNC,
        "import redis, pottery",
        "pottery.Redlock(key=name, masters={redis.Redis.from_url(url)}, auto_release_time=10)",
    ),
    "pottery-aio": (
        ASYNC,
        "import redis.asyncio, pottery",
        "pottery.AIORedlock(key=name, masters={redis.asyncio.Redis.from_url(url)}, auto_release_time=10)",
    ),
    "python-redis-lock": (
        SYNC,
        "import redis, redis_lock",
        "redis_lock.Lock(redis.Redis.from_url(url), name, expire=10, auto_renewal=True)",
    ),
}
"""As the first page of each library's documentation has it."""


def told() -> None:
    """Says that the lock was acquired."""
    acquired_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
    imported_ns = variables["imported_ns"]
    print(
        f'{{"begun_ns": {begun_ns}, "imported_ns": {imported_ns}, "acquired_ns": {acquired_ns}, "cpu_ns": {cpu_ns}}}',
        flush=True,
    )


form, imports, lock = PROGRAMS[sys.argv[1]]
variables = {"time": time, "told": told, "url": sys.argv[2], "name": "bench:cold"}
exec(form.format(imports=imports, lock=lock), variables)
