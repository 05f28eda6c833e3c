"""The npm packages: one with the addon for each platform, and the one that people install."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from dist import legal, stranger, workshop
from dist.platforms import PLATFORMS, Platform
from dist.version import ROOT, version
from dist.workshop import LICENCES, MEGABYTE, NOTICES, OUT, STAGE, Artefact, DistError, copied, emptied, run, strip
from frameworks.service import Service
from support.ports import free_port

NODE = ROOT / "node"
PROGRAM = Path("node_modules", ".bin", "redlock")
"""The program, in a project that has installed the packages."""

NEXT = workshop.NODE_TOOLS.parents[1]
"""Below which Next is installed."""

NO_ADDON = 70
"""The exit status of the program if its addon is missing."""

LEFT_OUT = ("files", "napi", "scripts", "devDependencies")
"""What of node/package.json is not published: it is for those who build it."""


def make(platform: Platform) -> list[Artefact]:
    """Builds both packages, and tries them together."""
    addon = _pack_addon(platform)
    main = _pack_main()
    run("publint", "--strict", STAGE / "npm-main")
    # What resolves without `exports` is older than Node 20, and TypeScript 7 knows it no more.
    run("attw", "--profile", "node16", main.path)
    _try([main, addon])
    _try_next([main, addon])
    _check_elsewhere(main.path)
    return [addon, main]


def _manifest() -> dict[str, Any]:
    manifest = json.loads((NODE / "package.json").read_text(encoding="utf-8"))
    assert isinstance(manifest, dict)
    return manifest


def _name(platform: Platform) -> str:
    return f"{_manifest()['name']}-{platform.npm}"


def _pack_addon(platform: Platform) -> Artefact:
    manifest = NODE / "Cargo.toml"
    build = ["zigbuild", "--target", platform.zig] if platform.zig else ["build", "--target", platform.triple]
    run("cargo", *build, "--locked", "--profile", "dist", "--manifest-path", manifest)
    suffix = "dylib" if platform.os == "darwin" else "so"
    folder = emptied(STAGE / "npm-addon")
    addon = folder / f"redlock.{platform.npm}.node"
    shutil.copy(workshop.BUILT / platform.triple / "dist" / f"libredlock_node.{suffix}", addon)
    strip(addon)
    legal.write_notices(manifest, folder / NOTICES)
    bom = legal.write_bom(manifest, "node")
    whole = _manifest()
    package = {
        "name": _name(platform),
        "version": version(),
        "description": f"The compiled part of {whole['name']} for {platform.npm}",
        **{key: whole[key] for key in ("homepage", "bugs", "license", "repository", "engines")},
        **platform.manifest,
        "main": addon.name,
        "files": [addon.name, NOTICES, bom.name],
    }
    shutil.copy(bom, folder)
    (folder / "README.md").write_text(f"{package['description']}. It is installed by that package.\n", encoding="utf-8")
    return Artefact(_packed(folder, package), 4 * MEGABYTE)


def _pack_main() -> Artefact:
    run("npm", "run", "--silent", "build:lib", cwd=NODE)
    folder = emptied(STAGE / "npm-main")
    shutil.copytree(NODE / "lib", folder / "lib", ignore=shutil.ignore_patterns(".*"))
    copied([NODE / "README.md", NODE / "native.d.ts"], folder)
    whole = _manifest()
    package = {key: value for key, value in whole.items() if key not in LEFT_OUT} | {
        "version": version(),
        "files": ["lib", "native.d.ts"],
        "optionalDependencies": {_name(platform): version() for platform in PLATFORMS},
    }
    return Artefact(_packed(folder, package), MEGABYTE)


def _packed(folder: Path, package: dict[str, Any]) -> Path:
    copied([ROOT / name for name in LICENCES], folder)
    (folder / "package.json").write_text(json.dumps(package, indent=2) + "\n", encoding="utf-8")
    run("npm", "pack", "--pack-destination", OUT, cwd=folder)
    return OUT / f"{package['name']}-{package['version']}.tgz"


def _try(artefacts: list[Artefact]) -> None:
    """Installs the packages in an empty project, and has locks with each module system and with the program."""
    env = stranger.environment("node", "npm")
    project = emptied(STAGE / "npm-project")
    (project / "package.json").write_text('{ "private": true, "type": "module" }\n', encoding="utf-8")
    # The packages of other platforms are not there yet, and are optional.
    packages = [artefact.path for artefact in artefacts]
    run("npm", "install", "--offline", "--no-audit", "--no-fund", *packages, cwd=project, env=env)
    programs = {".mjs": "ESM", ".cjs": "CommonJS", ".js": "TypeScript"}
    copied(list(stranger.PROGRAMS.glob("lock.*s")), project)
    options = ("--strict", "--target", "es2022", "--module", "nodenext", "--types", "node", "--typeRoots")
    modules = NODE / "node_modules"
    run(modules / ".bin" / "tsc", *options, modules / "@types", project / "lock.ts", cwd=project)
    for suffix in programs:
        stranger.locks(stranger.ran("node", f"lock{suffix}", cwd=project, env=env))
    # As bundlers and platforms do that run only what a program needs.
    run("nft", "build", "lock.mjs", cwd=project)
    stranger.locks(stranger.ran("node", "lock.mjs", cwd=project / "dist", env=env))
    manual = stranger.commands(project / PROGRAM, cwd=project, env=env)
    node = run("node", "--version", env=env).strip()
    for artefact in artefacts:
        artefact.manuals.add(manual)
        artefact.tried.append(f"Node {node.removeprefix('v')}: {', '.join(programs.values())}, traced by nft")


def _try_next(artefacts: list[Artefact]) -> None:
    """Builds a server of Next that stands alone, with webpack, and has locks with it where nothing is installed."""
    with tempfile.TemporaryDirectory(prefix="next-", dir=NEXT) as directory:
        # Next and React are found above it, and all that the server gets are the files that Next has traced.
        project = Path(directory)
        shutil.copytree(stranger.PROGRAMS / "next", project, dirs_exist_ok=True)
        (project / "package.json").write_text('{ "private": true }\n', encoding="utf-8")
        options = ("--offline", "--no-audit", "--no-fund", "--no-package-lock")
        run("npm", "install", *options, *(artefact.path for artefact in artefacts), cwd=project)
        run("next", "build", "--webpack", cwd=project, env=workshop.tools() | {"NEXT_TELEMETRY_DISABLED": "1"})
        alone = emptied(STAGE / "next") / "standalone"
        shutil.move(project / ".next" / "standalone", alone)
    # Its own folder is below the root of the packages.
    (server,) = (path for path in alone.rglob("server.js") if "node_modules" not in path.parts)
    port = free_port()

    def locks(url: str) -> str:
        env = stranger.environment("node") | {"NODE_URL": url, "PORT": str(port)}
        with Service(["node", server.name], server.parent, env, port) as service:
            service.wait_until_it_listens()
            return service.ask("/")[1]

    stranger.locks(locks)
    for artefact in artefacts:
        artefact.tried.append("Next")


def _check_elsewhere(main: Path) -> None:
    """Where no package has an addon, the import has to say which platforms have one, and how to build."""
    env = stranger.environment("node", "npm")
    project = emptied(STAGE / "npm-elsewhere")
    (project / "package.json").write_text('{ "private": true }\n', encoding="utf-8")
    run("npm", "install", "--offline", "--no-audit", "--no-fund", "--omit=optional", main, cwd=project, env=env)
    said = run("node", "-e", 'try { require("redlock-rs") } catch (e) { console.log(e.message) }', cwd=project, env=env)
    for word in [*(platform.npm for platform in PLATFORMS), "build"]:
        if not re.search(rf"\b{word}\b", said):
            raise DistError(f"the import without an addon does not say {word!r}: {said}")
    program = project / PROGRAM
    status = subprocess.run([program, "--version"], env=env, stderr=subprocess.DEVNULL, check=False).returncode
    if status != NO_ADDON:
        raise DistError(f"the program without an addon exits with {status}, which may be the status of a command")
