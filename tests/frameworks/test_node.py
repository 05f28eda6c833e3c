"""The JavaScript programs of `core/docs/frameworks.md`, in their frameworks."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE

import pytest

from examples.program import ROOT
from frameworks.page import command, write
from frameworks.service import LIMIT_S, Service, hold
from support.clock import until
from support.ports import free_port
from support.process import stop_process
from support.servers import Server

INSTALLED = Path(__file__).parent / "node"
BIN = INSTALLED / "node_modules" / ".bin"

APP = """
import { lock } from "redlock-rs";
await lock("bundled").using(async () => console.log("held"));
"""

APP_OF_WEBPACK = """
const { lock } = require("redlock-rs");
lock("bundled").using(async () => console.log("held"));
"""

PACK = """
import webpack from "webpack";
import config from "./webpack.config.cjs";
webpack(config, (error, stats) => {
  if (error || stats.hasErrors()) throw error ?? new Error(stats.toString("errors-only"));
});
"""

JEST: list[list[str]] = [[], ["--detectOpenHandles"], ["--detectLeaks"]]

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

JOBS = """
import { Queue, QueueEvents } from "bullmq";

const connection = { url: process.env.REDIS_URL };
const queue = new Queue("reports", { connection });
const events = new QueueEvents("reports", { connection });
await events.waitUntilReady();
const busy = await queue.add("report", { customer: "bob" });
const jobs = await queue.addBulk(Array.from({ length: 20 }, () => ({ name: "report", data: { customer: "ada" } })));
for (const job of jobs) console.log((await job.waitUntilFinished(events)).fence);
if ((await busy.getState()) !== "delayed") throw new Error("a busy customer's job is not delayed");
await events.close();
await queue.close();
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


@pytest.mark.parametrize("framework", ["express", "fastify", "nestjs"])
def test_a_web_server(server: Server, env: dict[str, str], app: Path, framework: str) -> None:
    files = {"express": "express.mjs", "fastify": "fastify.mjs", "nestjs": "shop.ts"}
    write(app, files[framework])
    if framework == "nestjs":
        (app / "tsconfig.json").write_text('{"compilerOptions": {"experimentalDecorators": true}}')
        run(app, env, str(BIN / "esbuild"), "shop.ts", "--format=esm", "--outfile=shop.mjs")
        files[framework] = "shop.mjs"
    port = free_port()
    service = Service(["node", files[framework]], app, env | {"PORT": str(port)}, port)
    with service, ThreadPoolExecutor(10) as pool:
        service.wait_until_it_listens()
        answers = list(pool.map(service.ask_json, ["/users/ada/payments"] * 20))
        assert {status for status, _ in answers} <= {200, 201}
        assert len({body["fence"] for _, body in answers}) == 20
        hold(server, "user:bob")
        status, _ = service.ask_json("/users/bob/payments")
        assert status == 409
    until(lambda: not server.has("user:ada"), "it is released")


def test_bullmq(server: Server, env: dict[str, str], app: Path) -> None:
    with Server(tcp=True) as queue:
        env |= {"REDIS_URL": queue.url}
        write(app, "reports.mjs")
        (app / "jobs.mjs").write_text(JOBS)
        hold(queue, "customer:bob")
        with Service(["node", "reports.mjs"], app, env):
            fences = [int(line) for line in run(app, env, "node", "jobs.mjs").split()]
        assert len(set(fences)) == 20
        until(lambda: not queue.has("customer:ada"), "it is released")
    assert not server.has("customer:ada")


LAMBDA = {
    "python": [
        sys.executable,
        "-c",
        "import lambda_function, sys\nfor user in sys.stdin:\n"
        "    print(lambda_function.lambda_handler({'user': user.strip()}, None)['fence'], flush=True)",
    ],
    "js": [
        "node",
        "--input-type=module",
        "-e",
        "import { createInterface } from 'node:readline';\nimport { handler } from './lambda.mjs';\n"
        "for await (const user of createInterface({ input: process.stdin }))\n"
        "  console.log((await handler({ user })).fence);",
    ],
}
"""What calls a handler, line by line."""


@pytest.mark.parametrize("language", LAMBDA)
def test_a_process_that_is_frozen_between_calls(server: Server, env: dict[str, str], app: Path, language: str) -> None:
    write(app, "lambda_function.py", "lambda.mjs")
    with subprocess.Popen(LAMBDA[language], cwd=app, env=env, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        fences = []
        for _ in range(3):
            process.stdin.write("ada\n")
            process.stdin.flush()
            fences.append(int(process.stdout.readline()))
            until(lambda: not server.has("user:ada"), "it is released")
            stop_process(process.pid)
            server.command("CLIENT", "KILL", "TYPE", "normal")
            process.send_signal(signal.SIGCONT)
        process.stdin.close()
        assert process.wait(LIMIT_S) == 0
    assert fences == sorted(set(fences))


@pytest.mark.parametrize(
    ("program", "file", "said"), [("node", "workers.mjs", "worked\n" * 3), (str(BIN / "bun"), "job.mjs", "worked\n")]
)
def test_a_program_alone(server: Server, env: dict[str, str], app: Path, program: str, file: str, said: str) -> None:
    write(app, file)
    assert run(app, env, program, file) == said
    until(lambda: not server.has("cron:nightly"), "it is released")


@pytest.mark.parametrize(
    ("words", "file", "said"),
    [
        *((["jest", "--rootDir", ".", *more], "nightly.test.js", "3 passed, 3 total") for more in JEST),
        (["vitest", "run", "--root", "."], "nightly.spec.ts", "1 passed"),
    ],
)
def test_a_runner_of_tests(env: dict[str, str], app: Path, words: list[str], file: str, said: str) -> None:
    write(app, file)
    nowhere = env | {"REDLOCK_URLS": "unix:///nowhere/at/all", "NO_COLOR": "1"}
    told = run(app, nowhere, str(BIN / words[0]), *words[1:])
    assert said in told
    assert "open handle" not in told


def test_clients_of_other_packages(server: Server, env: dict[str, str], app: Path) -> None:
    server.command("ACL", "SETUSER", "app", "on", ">S3CR3T@/:%", "~*", "&*", "+@all")
    (app / "clients.mjs").write_text(CLIENTS)
    assert run(app, env | {"SOCKET": str(server.socket)}, "node", "clients.mjs") == "1 0\n" * 2


def test_a_tracer_of_files_finds_the_compiled_part(env: dict[str, str], app: Path) -> None:
    (app / "app.mjs").write_text(APP)
    files = run(app, env, "node", "--input-type=module", "-e", TRACE).split()
    assert any(file.endswith(".node") for file in files)


@pytest.mark.parametrize("bundler", ["esbuild", "webpack"])
def test_a_bundler(server: Server, env: dict[str, str], app: Path, bundler: str) -> None:
    (app / "app.mjs").write_text(APP)
    (app / "app.cjs").write_text(APP_OF_WEBPACK)
    write(app, "webpack.config.cjs")
    # The command line of webpack is a package of its own.
    pack = ["node", "--input-type=module", "-e", PACK]
    run(app, env, *(pack if bundler == "webpack" else [str(BIN / "esbuild"), *command("esbuild")]))
    assert run(app, env, "node", f"out/app.{'cjs' if bundler == 'webpack' else 'mjs'}") == "held\n"
    until(lambda: not server.has("bundled"), "it is released")


@pytest.mark.parametrize("bundler", ["--turbopack", "--webpack"])
def test_next(server: Server, env: dict[str, str], app: Path, tmp_path: Path, bundler: str) -> None:
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
    run(app, env, str(BIN / "next"), "build", bundler)
    elsewhere = tmp_path / "elsewhere"
    shutil.move(app / ".next" / "standalone", elsewhere)
    # Its own folder is below the root of the packages.
    (program,) = (path for path in elsewhere.rglob("server.js") if "node_modules" not in path.parts)
    port = free_port()
    with Service(["node", program.name], program.parent, env | {"PORT": str(port)}, port) as service:
        service.wait_until_it_listens()
        assert service.ask_json("/pay") == (200, {"paid": True})
    until(lambda: not server.has("pay"), "it is released")


def test_deno(server: Server, env: dict[str, str], app: Path) -> None:
    write(app, "job.mjs")
    run_job, permission, job = command("deno")
    deno = [str(BIN / "deno"), run_job, "--no-prompt"]
    assert run(app, env, *deno, permission, job) == "worked\n"
    until(lambda: not server.has("cron:nightly"), "it is released")
    with pytest.raises(AssertionError, match="ffi"):
        run(app, env, *deno, job)
