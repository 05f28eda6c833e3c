"""The JavaScript programs of `core/docs/frameworks.md`, in their frameworks."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from examples.program import ROOT
from frameworks.page import command, write
from frameworks.service import LIMIT_S, Service, free_port
from support.clock import until
from support.servers import Server

INSTALLED = Path(__file__).parent / "node"
BIN = INSTALLED / "node_modules" / ".bin"

APP = """
import { lock } from "redlock-rs";
await lock("bundled").using(async () => console.log("held"));
"""

CLIENTS = """
import { Redis } from "ioredis";
import { createClient } from "redis";
import { Redlock } from "redlock-rs";

const path = process.env.SOCKET;
const login = { username: "app", password: "S3CR3T@/:%" };
const ioredis = new Redis({ path, db: 3, ...login });
const nodeRedis = await createClient({ socket: { path }, database: 3, ...login }).connect();
for (const theirs of [ioredis, nodeRedis]) {
  const redlock = new Redlock(theirs);
  await redlock.lock("job").using(async () => console.log(await theirs.exists("job"), await theirs.exists("other")));
  redlock.close();
}
ioredis.disconnect();
nodeRedis.destroy();
"""

TRACE = """
import { nodeFileTrace } from "@vercel/nft";
const { fileList } = await nodeFileTrace(["app.mjs"]);
console.log([...fileList].join("\\n"));
"""


@pytest.fixture
def app() -> Iterator[Path]:
    """The directory of a program, where Node finds the frameworks and a copy of the package, as it is installed."""
    if not BIN.exists():
        pytest.fail("the frameworks are not installed: `make frameworks`", pytrace=False)
    with tempfile.TemporaryDirectory(prefix="app-", dir=INSTALLED) as directory:
        package = Path(directory) / "node_modules" / "redlock-rs"
        shutil.copytree(ROOT / "node" / "lib", package / "lib")
        for file in (ROOT / "node" / "package.json", *(ROOT / "node").glob("*.node")):
            shutil.copy(file, package)
        (Path(directory) / "package.json").write_text("{}")
        yield Path(directory)


def run(directory: Path, env: dict[str, str], *words: str) -> str:
    """The output of a program that ends by itself, errors included."""
    done = subprocess.run(
        words,
        cwd=directory,
        env=env | {"CI": "true", "NEXT_TELEMETRY_DISABLED": "1"},
        timeout=2 * LIMIT_S,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def hold(server: Server, name: str) -> None:
    """Has another program hold a lock."""
    server.command("SET", name, "another program's token", "PX", 60_000)


@pytest.mark.parametrize("framework", ["express", "fastify"])
def test_a_web_server(server: Server, env: dict[str, str], app: Path, framework: str) -> None:
    files = {"express": "express.mjs", "fastify": "fastify.mjs"}
    write(app, files[framework])
    port = free_port()
    service = Service(["node", files[framework]], app, env | {"PORT": str(port)}, port)
    with service, ThreadPoolExecutor(10) as pool:
        service.wait_until_it_listens()
        answers = list(pool.map(service.ask_json, ["/users/ada/payments"] * 20))
        assert {status for status, _ in answers} == {200}
        assert len({body["fence"] for _, body in answers}) == 20
        hold(server, "user:bob")
        status, _ = service.ask_json("/users/bob/payments")
        assert status == 409
    until(lambda: not server.has("user:ada"), "it is released")


def test_cluster(server: Server, env: dict[str, str], app: Path) -> None:
    write(app, "workers.mjs")
    assert run(app, env, "node", "workers.mjs") == "worked\n" * 3
    until(lambda: not server.has("cron:nightly"), "it is released")


@pytest.mark.parametrize("option", [None, "--detectOpenHandles", "--detectLeaks"])
def test_jest(env: dict[str, str], app: Path, option: str | None) -> None:
    write(app, "nightly.test.js")
    nowhere = env | {"REDLOCK_URLS": "unix:///nowhere/at/all"}
    said = run(app, nowhere, str(BIN / "jest"), "--rootDir", ".", *([option] if option else []))
    assert "3 passed, 3 total" in said
    assert "open handle" not in said


def test_vitest(env: dict[str, str], app: Path) -> None:
    write(app, "nightly.spec.ts")
    nowhere = env | {"REDLOCK_URLS": "unix:///nowhere/at/all", "NO_COLOR": "1"}
    assert "1 passed" in run(app, nowhere, str(BIN / "vitest"), "run", "--root", ".")


def test_clients_of_other_packages(server: Server, env: dict[str, str], app: Path) -> None:
    server.command("ACL", "SETUSER", "app", "on", ">S3CR3T@/:%", "~*", "&*", "+@all")
    (app / "clients.mjs").write_text(CLIENTS)
    assert run(app, env | {"SOCKET": str(server.socket)}, "node", "clients.mjs") == "1 0\n" * 2


def test_a_tracer_of_files_finds_the_compiled_part(env: dict[str, str], app: Path) -> None:
    (app / "app.mjs").write_text(APP)
    files = run(app, env, "node", "--input-type=module", "-e", TRACE).split()
    assert any(file.endswith(".node") for file in files)


def test_esbuild(server: Server, env: dict[str, str], app: Path) -> None:
    (app / "app.mjs").write_text(APP)
    run(app, env, str(BIN / "esbuild"), *command("esbuild"))
    assert run(app, env, "node", "out/app.mjs") == "held\n"
    until(lambda: not server.has("bundled"), "it is released")


def test_webpack(server: Server, env: dict[str, str], app: Path) -> None:
    write(app, "webpack.config.cjs")
    code = 'const { lock } = require("redlock-rs");\nlock("bundled").using(async () => console.log("held"));\n'
    (app / "app.cjs").write_text(code)
    # Its command line is a package of its own.
    pack = """
import webpack from "webpack";
import config from "./webpack.config.cjs";
webpack(config, (error, stats) => {
  if (error || stats.hasErrors()) throw error ?? new Error(stats.toString("errors-only"));
});
"""
    run(app, env, "node", "--input-type=module", "-e", pack)
    assert run(app, env, "node", "out/app.cjs") == "held\n"
    until(lambda: not server.has("bundled"), "it is released")


def test_next(server: Server, env: dict[str, str], app: Path) -> None:
    write(app, "next.config.mjs")
    route = app / "app" / "pay" / "route.js"
    route.parent.mkdir(parents=True)
    route.write_text("""
import { lock } from "redlock-rs";

export async function POST() {
  return await lock("pay").using(async () => Response.json({ paid: true }));
}
""")
    layout = 'export default function Layout({ children }) { return <html lang="en"><body>{children}</body></html>; }\n'
    (app / "app" / "layout.jsx").write_text(layout)
    run(app, env, str(BIN / "next"), "build")
    port = free_port()
    with Service([str(BIN / "next"), "start", "--port", str(port)], app, env, port) as service:
        service.wait_until_it_listens()
        assert service.ask_json("/pay") == (200, {"paid": True})
    until(lambda: not server.has("pay"), "it is released")


def test_bun(server: Server, env: dict[str, str], app: Path) -> None:
    write(app, "job.mjs")
    assert run(app, env, str(BIN / "bun"), "run", "job.mjs") == "worked\n"
    until(lambda: not server.has("cron:nightly"), "it is released")


def test_deno(server: Server, env: dict[str, str], app: Path) -> None:
    write(app, "job.mjs")
    run_job, permission, job = command("deno")
    deno = [str(BIN / "deno"), run_job, "--no-prompt"]
    assert run(app, env, *deno, permission, job) == "worked\n"
    until(lambda: not server.has("cron:nightly"), "it is released")
    with pytest.raises(AssertionError, match="ffi"):
        run(app, env, *deno, job)
