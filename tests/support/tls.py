"""Servers with TLS, and the certificates that tests use.

The files in tls/ are a CA, a certificate of a server (localhost, redis.internal, 127.0.0.1) and one of a client, both
signed by the CA. Two more are of servers that sign their own: as `openssl req -x509` makes it, which says that it is a
CA's, and of version 1. They protect nothing.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from support.servers import Server, programs

FILES = Path(__file__).parent / "tls"

CA = FILES / "ca.pem"
CLIENT = FILES / "client.pem"
CLIENT_KEY = FILES / "client.key"


SELF_SIGNED = {name: FILES / f"{name}.pem" for name in ("self-signed", "v1")}


def options(*, certificates: bool = False, server: str = "server") -> list[str]:
    """The options of a server with TLS, whose certificate and key have the name `server`. With `certificates`, clients
    need one."""
    return [
        *("--tls-auth-clients", "yes" if certificates else "no"),
        *("--tls-cert-file", str(FILES / f"{server}.pem"), "--tls-key-file", str(FILES / f"{server}.key")),
        *("--tls-ca-cert-file", str(CA)),
        # Servers of a cluster are each other's clients.
        *("--tls-client-cert-file", str(CLIENT), "--tls-client-key-file", str(CLIENT_KEY)),
    ]


@cache
def program_with_tls() -> Path | None:
    """The first server on this machine that has TLS, if one has."""
    for program in programs():
        try:
            with Server(tcp=True, program=program, tls=options()):
                return program
        except RuntimeError as error:
            # It says so of an option that it does not know.
            if "tls" not in str(error).lower():
                raise
    return None
