"""The command that is run under locks. It writes down when it lives and which signals it gets, and ends on request.

    python -I -S work.py DIARY [--catch TERM,INT] [--beat] [--forks 2]

It imports nothing of the tests, so that it starts fast. Each line of the diary is an instant of the clock that counts
suspends, the process, the fence, what happens, and more about that.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_BEAT_S = 0.001


class _Diary:
    """One file for all processes: each line is appended in one piece."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def write(self, *words: object) -> None:
        fence = os.environ.get("REDLOCK_FENCE", "-")
        line = " ".join(map(str, (time.clock_gettime_ns(_CLOCK), os.getpid(), fence, *words)))
        os.write(self._file, f"{line}\n".encode())


def _options() -> argparse.Namespace:
    def signals(names: str) -> list[signal.Signals]:
        return [signal.Signals[f"SIG{name}"] for name in names.split(",")]

    parser = argparse.ArgumentParser()
    parser.add_argument("diary")
    parser.add_argument("--catch", type=signals, default=[], help="write these signals down, and go on")
    parser.add_argument("--end-on", type=signals, default=[], help="write these signals down, and end")
    parser.add_argument("--until", help="end when this file exists")
    parser.add_argument("--status", type=int, default=0, help="the exit status at the end")
    parser.add_argument("--beat", action="store_true", help="write down each millisecond of its life")
    parser.add_argument("--forks", type=int, default=0, help="have so many children that do the same")
    parser.add_argument("--group", choices=["own", "session"], help="go to a process group or a session of its own")
    parser.add_argument("--hop", action="store_true", help="have a child that goes on in another process, all the time")
    return parser.parse_args()


def _fork(options: argparse.Namespace) -> None:
    for _ in range(options.forks):
        if os.fork() == 0:
            return


def _hop(diary: _Diary) -> None:
    """Goes on in a child again and again, so that whoever looks for the process finds one that has gone."""
    if os.fork():
        return
    diary.write("begin")
    while True:
        if os.fork():
            os._exit(0)
        diary.write("beat")
        time.sleep(_BEAT_S)


def main() -> None:
    """Lives until it is told to end, or is killed."""
    options = _options()
    diary = _Diary(options.diary)
    ending: list[int] = []

    def caught(number: int, _: object) -> None:
        diary.write("signal", signal.Signals(number).name.removeprefix("SIG"))
        if number in options.end_on:
            ending.append(number)

    for each in (*options.catch, *options.end_on):
        signal.signal(each, caught)
    if options.group == "session":
        os.setsid()
    elif options.group == "own":
        os.setpgid(0, 0)
    parent = os.getpid()
    _fork(options)
    if options.hop:
        _hop(diary)
    diary.write("begin")
    while not ending and not (options.until and os.path.exists(options.until)):
        time.sleep(_BEAT_S)
        if options.beat:
            diary.write("beat")
    # Its children are its own to end, as those of every program.
    while os.getpid() == parent and options.forks:
        try:
            os.wait()
        except ChildProcessError:
            break
    # Python forgets its handlers when it exits, and a signal may still be on its way.
    signal.pthread_sigmask(signal.SIG_BLOCK, options.catch)
    diary.write("end")
    sys.exit(options.status)


if __name__ == "__main__":
    main()
