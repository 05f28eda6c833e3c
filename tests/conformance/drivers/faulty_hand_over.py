"""Detached locks of the driver with planted faults; see faulty.py. Only locks of one name can be detached."""

from __future__ import annotations

import base64
import secrets
import time
from dataclasses import dataclass
from functools import reduce

from conformance.drivers.faulty_locks import Client, Json, Lock, LockError, granting

BEGIN = "redlock1."

REKEY = """
local value = redis.call("GET", KEYS[1])
if not value then return false end
local token, rest = string.match(value, "^(%x+)(:.*)$")
if token ~= ARGV[2] and token ~= ARGV[1] then return -1 end
redis.call("SET", KEYS[1], ARGV[1] .. rest, "PX", math.max(ARGV[3], redis.call("PTTL", KEYS[1])))
return 1
"""
"""ARGV: the fresh token, the former one, the ttl."""


@dataclass
class Detached:
    """What is in a text."""

    name: bytes
    token: bytes
    label: bytes
    fence: int
    acquired_us: int
    ttl_us: int

    def to_text(self) -> str:
        """The text, as every language writes it."""
        now_us = time.time_ns() // 1000
        times = [self.fence, self.fence, self.acquired_us, now_us + self.ttl_us, 0, self.ttl_us, 0, 0]
        body = numbers(0, 0, 0, 0, 1) + with_length(self.name) + with_length(self.token)
        body += numbers(*times) + with_length(self.label)
        return BEGIN + base64.urlsafe_b64encode(body + checksum(body)).rstrip(b"=").decode()

    @classmethod
    def of(cls, text: str) -> Detached:
        """Reads a text."""
        body = memoryview(base64.urlsafe_b64decode(text.removeprefix(BEGIN) + "=="))
        at = 0

        def number() -> int:
            nonlocal at
            value, shift = 0, 0
            while True:
                byte, at = body[at], at + 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value

        def some() -> bytes:
            nonlocal at
            length = number()
            at += length
            return bytes(body[at - length : at])

        for _ in range(5):
            number()
        name, token = some(), some()
        fence, _, acquired_us, _, _, ttl_us, _, _ = (number() for _ in range(8))
        return cls(name, token, some(), fence, acquired_us, ttl_us)


def numbers(*values: int) -> bytes:
    """Numbers, seven bits in each byte, the lowest first."""
    text = bytearray()
    for value in values:
        rest = value
        while rest >= 128:
            text.append(rest & 127 | 128)
            rest >>= 7
        text.append(rest)
    return bytes(text)


def with_length(some: bytes) -> bytes:
    """Bytes behind their number."""
    return numbers(len(some)) + some


def checksum(body: bytes) -> bytes:
    """FNV-1a."""
    return reduce(lambda total, byte: (total ^ byte) * 0x01000193 % 2**32, body, 0x811C9DC5).to_bytes(4, "big")


def detach(lock: Lock, ttl_s: float | None) -> str:
    """Ends a hold without a release."""
    lock.check()
    if ttl_s:
        lock.extend(ttl_s)
    lock.ended.set()
    lock.over = LockError("not_held", lock.name)
    held_s = time.monotonic() - lock.start
    acquired_us = time.time_ns() // 1000 - int(held_s * 1e6)
    token, label = lock.token.encode(), lock.label.encode()
    return Detached(lock.name, token, label, lock.fence or 0, acquired_us, int(lock.ttl_s * 1e6)).to_text()


def attach(client: Client, text: str, options: Json) -> Lock:
    """Goes on with a hold."""
    detached = Detached.of(text)
    known = {"ttl_ms": detached.ttl_us / 1000, "label": detached.label.decode()}
    lock = Lock(client, [detached.name.removeprefix(client.prefix)], known | options)
    former, last = detached.token.decode(), time.monotonic() + (lock.timeout_s or 0)
    while True:
        start, lock.token = time.monotonic(), lock.rules.attached_token(former, secrets.token_hex(16))
        answers = lock.round(lock.rules.rekey, former, int(lock.ttl_s * 1000))
        if len(granting(answers)) >= lock.quorum:
            lock.begin(start, detached.fence)
            return lock
        if lock.rules.keys_back:
            fresh, lock.token = lock.token, former
            lock.round(lock.rules.rekey, fresh, int(lock.ttl_s * 1000))
        said = lock.said(answers)
        if reason := lock.loss(answers):
            raise LockError("lost", lock.name, reason, nodes=said)
        if time.monotonic() >= last:
            raise LockError("unavailable", lock.name, nodes=said)
