"""The fewest rights that the library needs: those of the user in .github/SECURITY.md."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from support.servers import Server, User

SECURITY = Path(__file__).parents[2] / ".github" / "SECURITY.md"

# The library names its connections by CLIENT SETINFO, and releases locks by DELIFEQ or DELEX. Not every server knows
# these commands, so the page leaves them to the reader. Redis 6.2 does not report subcommands.
_OPTIONAL = {"client|setinfo", "client", "delifeq", "delex"}

# As the page says of clusters.
_IN_CLUSTER = ("+cluster|slots", "+asking")


def fewest() -> User:
    """The user, word for word."""
    lines = re.findall(r"^ +ACL SETUSER (\S+) on >(\S+) (.+)$", SECURITY.read_text(encoding="utf-8"), re.M)
    ((name, password, rules),) = lines
    return User(name, password, tuple(rules.split()))


def for_any_name(user: User) -> User:
    """The same user, with the right to lock any name."""
    rules = (rule for rule in user.rules if not rule.startswith("~"))
    return dataclasses.replace(user, rules=(*rules, "~*"))


def in_cluster(user: User) -> User:
    """The same user, with the rights that are needed in a cluster besides."""
    return dataclasses.replace(user, rules=(*user.rules, *_IN_CLUSTER))


def refused(server: Server) -> set[str]:
    """As `all_refused`, without commands that users need no right to."""
    return all_refused(server) - _OPTIONAL


def all_refused(server: Server) -> set[str]:
    """What servers have refused users since the last look, in the servers' words: commands and keys."""
    entries = server.command("ACL", "LOG", 128)
    server.command("ACL", "LOG", "RESET")
    assert isinstance(entries, list)
    objects = set()
    for entry in entries:
        assert isinstance(entry, list)
        fields = dict(zip(entry[::2], entry[1::2], strict=True))
        objects.add(fields[b"object"])
    return {str(each, errors="replace") for each in objects if isinstance(each, bytes)}
