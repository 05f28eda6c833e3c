"""The platforms for which something built is published."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True)
class Platform:
    """One of them, with its name for each tool."""

    triple: str
    """Its name for Rust."""
    npm: str
    """The end of the name of its npm package."""
    os: str
    cpu: str
    libc: str | None = None
    zig: str | None = None
    """Its name for cargo-zigbuild, which links for an older libc than that of this machine."""
    wheel: str | None = None
    """The compatibility that its wheel promises."""

    @property
    def manifest(self) -> dict[str, list[str]]:
        """Where npm installs its package."""
        libc = {"libc": [self.libc]} if self.libc else {}
        return {"os": [self.os], "cpu": [self.cpu]} | libc


def _linux(rust_cpu: str, npm_cpu: str, libc: str) -> Platform:
    triple = f"{rust_cpu}-unknown-linux-{libc}"
    names = {"gnu": ("glibc", f"{triple}.2.17", "manylinux2014"), "musl": ("musl", triple, "musllinux_1_2")}
    return Platform(triple, f"linux-{npm_cpu}-{libc}", "linux", npm_cpu, *names[libc])


PLATFORMS = (
    _linux("x86_64", "x64", "gnu"),
    _linux("aarch64", "arm64", "gnu"),
    _linux("x86_64", "x64", "musl"),
    _linux("aarch64", "arm64", "musl"),
    Platform("x86_64-apple-darwin", "darwin-x64", "darwin", "x64"),
    Platform("aarch64-apple-darwin", "darwin-arm64", "darwin", "arm64"),
)


def here() -> Platform:
    """The platform of this machine."""
    told = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    host = re.search(r"^host: (.*)$", told, re.MULTILINE)
    assert host, told
    # Alpine's own Rust has a name of its own.
    return named(host[1].replace("-alpine-", "-unknown-"))


def named(triple: str) -> Platform:
    """The platform with this name."""
    for platform in PLATFORMS:
        if platform.triple == triple:
            return platform
    raise SystemExit(f"nothing built is published for {triple}; known are {', '.join(p.triple for p in PLATFORMS)}")
