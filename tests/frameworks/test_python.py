"""The Python programs of `core/docs/frameworks.md`, in their frameworks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from frameworks.page import command, write
from frameworks.service import LIMIT_S, Service, hold
from support.clock import until
from support.ports import free_port
from support.servers import Server

SCRIPTS = Path(sys.executable).parent

pytestmark = pytest.mark.test_all("it starts the servers and workers of frameworks", gate=True)


def run(directory: Path, env: dict[str, str], *arguments: str) -> str:
    """The output of a Python program that ends by itself."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=env,
        timeout=LIMIT_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def answer_under_locks(server: Server, service: Service, pool: ThreadPoolExecutor, *paths: str) -> None:
    """Asks for all of these at once, which exclude each other."""
    answers = list(pool.map(service.ask_json, [f"/users/ada/{path}" for path in paths] * (20 // len(paths))))
    assert {status for status, _ in answers} == {200}
    assert len({body["fence"] for _, body in answers}) == len(answers)
    hold(server, "user:bob")
    busy = [service.ask_json(f"/users/bob/{path}") for path in paths]
    assert busy == [(409, {"detail": "another payment of this user is under way"})] * len(paths)


def test_fastapi(server: Server, env: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, "shop.py")
    port = free_port()
    uvicorn = [str(SCRIPTS / "uvicorn"), *command("uvicorn"), "--port", str(port)]
    with Service(uvicorn, tmp_path, env, port) as service, ThreadPoolExecutor(10) as pool:
        service.wait_until_it_listens()
        answer_under_locks(server, service, pool, "payments")
    until(lambda: not server.has("user:ada"), "it is released")


def test_django(server: Server, env: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, "payments.py")
    port = free_port()
    django = [sys.executable, *command("python"), str(port)]
    with Service(django, tmp_path, env, port) as service, ThreadPoolExecutor(10) as pool:
        service.wait_until_it_listens()
        answer_under_locks(server, service, pool, "payments", "refunds", "statements")
    until(lambda: not server.has("user:ada"), "it is released")


@pytest.mark.parametrize(
    ("worker", "preload"),
    [
        ("gevent", False),
        ("gthread", True),
        ("sync", True),
    ],
)
def test_gunicorn(server: Server, env: dict[str, str], tmp_path: Path, worker: str, preload: bool) -> None:
    write(tmp_path, "wsgi.py")
    port = free_port()
    options = [worker if option == "gevent" else option for option in command("gunicorn")]
    gunicorn = [str(SCRIPTS / "gunicorn"), *options, "--bind", f"127.0.0.1:{port}", *(["--preload"] if preload else [])]
    with Service(gunicorn, tmp_path, env, port) as service, ThreadPoolExecutor(10) as pool:
        service.wait_until_it_listens()
        answers = list(pool.map(service.ask, ["/"] * 30))
        assert {status for status, _ in answers} == {200}
        fences = [int(re.fullmatch(r"report (\d+)\n", text)[1]) for _, text in answers]  # type: ignore[index]
        assert len(set(fences)) == 30
    assert service.process.returncode == 0, service.said
    until(lambda: not server.has("report"), "it is released")


CALLER = """
import json
from tasks import send, write_report

fences = [call.get(timeout=30) for call in [write_report.delay() for _ in range(20)]]
print(json.dumps({"fences": fences, "skipped": send.delay(17).get(timeout=30), "sent": send.delay(18).get(timeout=30)}))
"""


@pytest.mark.parametrize("pool", ["gevent", "prefork"])
def test_celery(server: Server, env: dict[str, str], tmp_path: Path, pool: str) -> None:
    write(tmp_path, "tasks.py")
    broker = f"redis+socket://{server.socket}"
    env |= {"CELERY_BROKER_URL": broker, "CELERY_RESULT_BACKEND": broker, "C_FORCE_ROOT": "1"}
    options = [{"gevent": pool, "20": "4"}.get(option, option) for option in command("celery")]
    with Service([str(SCRIPTS / "celery"), *options, "--loglevel", "INFO"], tmp_path, env) as service:
        service.wait_until_it_says("ready.")
        hold(server, "invoice:17")
        answer = json.loads(run(tmp_path, env, "-c", CALLER))
        assert len(set(answer["fences"])) == 20
        assert (answer["skipped"], answer["sent"]) == (None, "sent 18")
    assert service.process.returncode == 0, service.said
    until(lambda: not server.has("report"), "it is released")
    assert "Traceback" not in service.said


def test_one_beat_of_celery_runs(server: Server, env: dict[str, str], tmp_path: Path) -> None:
    env |= {"CELERY_BROKER_URL": f"redis+socket://{server.socket}", "PATH": f"{SCRIPTS}:{env['PATH']}"}
    hosts = [tmp_path / "one", tmp_path / "two"]
    for host in hosts:
        host.mkdir()
        write(host, "tasks.py")
    first, second = (Service([str(SCRIPTS / "redlock"), *command("redlock")], host, env) for host in hosts)
    with second, first:
        until(lambda: "is starting" in first.said + second.said, "one of them starts", limit_s=LIMIT_S)
        leader, other = (first, second) if "is starting" in first.said else (second, first)
        until(lambda: server.has("redlock:waiters:{beat}"), "the other one waits", limit_s=LIMIT_S)
        assert "is starting" not in other.said
        leader.process.terminate()
        other.wait_until_it_says("is starting")
    until(lambda: not server.has("beat"), "it is released")


def test_greenlets(server: Server, env: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, "greenlets.py")
    said = run(tmp_path, env, "-W", "ignore", "greenlets.py")
    assert sorted(said.splitlines()) == ["worked 0", "worked 1", "worked 2"]
    until(lambda: not server.has("job"), "it is released")


def test_anyio_over_trio(server: Server, env: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, "tasks_of_anyio.py")
    assert run(tmp_path, env, "tasks_of_anyio.py") == "worked\n" * 3
    until(lambda: not server.has("job"), "it is released")


def test_pytest(env: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, "test_nightly.py")
    # What is in this environment beside pytest and the package must not help.
    others = [f"-pno:{plugin}" for plugin in ("valkey", "asyncio", "hypothesispytest", "anyio", "xdist", "timeout")]
    said = run(tmp_path, env | {"REDLOCK_URLS": "unix:///nowhere/at/all"}, "-m", "pytest", "-W", "error", *others)
    assert "4 passed" in said
