"""What `make stress` runs in which order, what came of it, and its report. Nothing here starts a process."""

from __future__ import annotations

import random
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

PARTS = ("rust", "python", "node", "suites", "cluster", "sentinel")
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

T = TypeVar("T")


@dataclass(frozen=True)
class Condition:
    """A quota of the CPU in cores, or busy neighbours."""

    quota: float | None = None

    def __str__(self) -> str:
        return "busy neighbours" if self.quota is None else f"quota {self.quota:g}"

    def options(self) -> list[str]:
        """The options that choose it alone."""
        return ["--busy"] if self.quota is None else ["--quota", f"{self.quota:g}"]


@dataclass(frozen=True)
class Round:
    """One run of all that is chosen."""

    number: int
    condition: Condition
    seed: int

    def __str__(self) -> str:
        return f"{self.condition}, seed {self.seed}"


Outcomes = Mapping[str, Sequence[tuple[Round, str]]]
"""By test case: each round that it was in, and what came of it."""


def rounds(count: int, seed: int, conditions: Sequence[Condition]) -> list[Round]:
    """The rounds: the conditions take turns, and each round has the next seed."""
    return [Round(number + 1, conditions[number % len(conditions)], seed + number) for number in range(count)]


def shuffled(items: Iterable[T], seed: int) -> list[T]:
    """The items in the order of a seed."""
    order = list(items)
    random.Random(seed).shuffle(order)
    return order


def chosen(words: Iterable[str]) -> dict[str, list[str]]:
    """The parts to run, and what of each; an empty list is all of it.

    A word is a part, a part with one of its test cases behind a colon, a path with or without a test case, or a folder
    of `tests/`.
    """
    parts = defaultdict[str, list[str]](list)
    for word in words:
        part, colon, rest = word.partition(":")
        if part in PARTS and not rest.startswith(":"):
            parts[part] += [rest] if colon else []
        elif word.partition("::")[0].endswith(".rs"):
            parts["rust"].append(word)
        elif word.startswith(("python/", "node/")):
            parts[word.partition("/")[0]].append(word)
        else:
            parts["suites"].append(word if word.startswith("tests/") else f"tests/{word}")
    return dict(parts)


def rust_outcomes(output: str) -> Iterator[tuple[str, str]]:
    """The tests in the output of a test program in Rust."""
    words = {"ok": PASSED, "FAILED": FAILED, "ignored": SKIPPED}
    for name, word in re.findall(r"^test (\S+).* \.\.\. (ok|FAILED|ignored)\b", output, re.MULTILINE):
        yield name, words[word]


def tap_outcomes(output: str) -> Iterator[tuple[str, str]]:
    """The tests in the output of Node's test runner, in the form TAP; the names of suites are in front of theirs."""
    place: list[tuple[int, str]] = []
    for line in output.splitlines():
        if begun := re.fullmatch(r"( *)# Subtest: (.*)", line):
            place = [each for each in place if each[0] < len(begun[1])] + [(len(begun[1]), begun[2])]
        elif ended := re.fullmatch(r"( *)(not )?ok \d+ - (.*?)(?: # (SKIP|TODO)\b.*)?", line):
            above = [name for depth, name in place if depth < len(ended[1])]
            outcome = SKIPPED if ended[4] else FAILED if ended[2] else PASSED
            yield " > ".join([*above, ended[3]]), outcome


def repeat(case: str, run: Round, options: Sequence[str] = ()) -> str:
    """The command that runs a test case as this round did."""
    words = ["--rounds", "1", *run.condition.options(), "--seed", str(run.seed), *options, "--only", case]
    return f'make stress ARGS="{shlex.join(words)}"'


def report(outcomes: Outcomes, logs: Mapping[tuple[Round, str], str], options: Sequence[str] = ()) -> list[str]:
    """The lines of the report: test cases whose outcomes differ, those that always failed, and how many there are."""
    found = {case: {outcome for _, outcome in seen} for case, seen in outcomes.items()}
    differ = sorted(case for case, kinds in found.items() if len(kinds) > 1)
    failed = sorted(case for case, kinds in found.items() if kinds == {FAILED})
    lines = []
    for title, cases in (("not the same in every round", differ), ("failed in every round", failed)):
        lines += [f"{title}:"] if cases else []
        for case in cases:
            lines.append(f"  {case}")
            for run, outcome in outcomes[case]:
                lines.append(f"    {outcome:8}{run!s:26}{logs.get((run, case), '')}".rstrip())
            failures = [run for run, outcome in outcomes[case] if outcome == FAILED]
            lines += [f"    {repeat(case, failures[0], options)}"] if failures else []
    return [*lines, f"{len(outcomes)} test cases: {len(differ)} differed, {len(failed)} failed in every round"]


def is_steady(outcomes: Outcomes) -> bool:
    """Whether each test case had the same outcome in every round, and none failed."""
    found = [{outcome for _, outcome in seen} for seen in outcomes.values()]
    return all(len(kinds) == 1 and FAILED not in kinds for kinds in found)
