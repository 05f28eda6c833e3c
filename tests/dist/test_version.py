"""There is one version, and whatever names it names this one; whatever names what is published names all of it."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from typing import Any

import pytest

from dist.platforms import PLATFORMS
from dist.program import STATIC, name_of
from dist.version import ROOT, program_version, version


def manifest(path: str) -> dict[str, Any]:
    """A manifest of the checkout."""
    text = (ROOT / path).read_text(encoding="utf-8")
    parsed = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    assert isinstance(parsed, dict)
    return parsed


@pytest.mark.parametrize("package", ["core", "python", "node"])
def test_a_crate_has_the_version_of_the_workspace(package: str) -> None:
    assert manifest(f"{package}/Cargo.toml")["package"]["version"] == {"workspace": True}


def test_the_program_needs_the_library_of_this_version_and_may_be_ahead_of_it() -> None:
    library = manifest("core/cli/Cargo.toml")["dependencies"]["redlock"]
    assert library["version"] == f"={version()}"
    numbers = [tuple(map(int, each.partition("-")[0].split("."))) for each in (version(), program_version())]
    assert numbers == sorted(numbers)


def test_the_wheel_has_the_version_of_its_crate() -> None:
    project = manifest("python/pyproject.toml")["project"]
    assert "version" not in project
    assert project["dynamic"] == ["version"]


def test_the_npm_package_has_the_version() -> None:
    lock = manifest("node/package-lock.json")
    assert {manifest("node/package.json")["version"], lock["version"], lock["packages"][""]["version"]} == {version()}


def test_the_changelog_knows_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert version() in headings


def test_the_addon_is_built_for_the_platforms_that_are_named() -> None:
    assert manifest("node/package.json")["napi"]["targets"] == [platform.triple for platform in PLATFORMS]


def test_each_crate_that_is_published_is_uploaded() -> None:
    names = subprocess.run(["git", "ls-files", "*Cargo.toml"], cwd=ROOT, check=True, capture_output=True, text=True)
    packages = [manifest(name).get("package", {"publish": False}) for name in names.stdout.split()]
    published = {package["name"] for package in packages if package.get("publish", True)}
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    for uploaded in (r'"(redlock-\w+) \$', r"--package (redlock-\w+)", r"linux-x64-gnu/(redlock-\w+)-\$\w+.crate"):
        assert set(re.findall(uploaded, workflow)) == published


def test_binstall_finds_the_archives() -> None:
    package = manifest("core/cli/Cargo.toml")["package"]
    ways = package["metadata"]["binstall"]
    darwin = [platform.triple for platform in PLATFORMS if platform.os == "darwin"]
    for target in STATIC + darwin:
        known = {"repo": "", "version": package["version"], "target": target, "bin": "redlock"}
        url, file = (ways[key].replace("{ ", "{").replace(" }", "}").format(**known) for key in ("pkg-url", "bin-dir"))
        assert url == f"/releases/download/v{package['version']}/{name_of(target)}.tar.gz"
        assert file == f"{name_of(target)}/redlock"
