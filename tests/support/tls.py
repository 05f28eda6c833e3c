"""A server with TLS, and the certificates that tests use.

The files in tls/ are a CA, a certificate of a server (localhost, redis.internal, 127.0.0.1) and one of a client, both
signed by the CA. They protect nothing.
"""

from __future__ import annotations

from pathlib import Path

from support.ports import free_port
from support.servers import Server, programs

FILES = Path(__file__).parent / "tls"

CA = FILES / "ca.pem"
CLIENT = FILES / "client.pem"
CLIENT_KEY = FILES / "client.key"


def start_with_tls(*, certificates: bool = False) -> tuple[Server, str] | None:
    """Starts a server with TLS, and returns it with its address; none if no server on this machine has TLS.

    With `certificates`, clients need one.
    """
    for program in programs():
        port = free_port()
        options = ["--tls-port", str(port), "--tls-auth-clients", "yes" if certificates else "no"]
        options += ["--tls-cert-file", str(FILES / "server.pem"), "--tls-key-file", str(FILES / "server.key")]
        options += ["--tls-ca-cert-file", str(CA)]
        try:
            server = Server(program=program, options=options)
        except RuntimeError as error:
            # It says so of an option that it does not know.
            if "tls" not in str(error).lower():
                raise
            continue
        return server, f"rediss://127.0.0.1:{port}"
    return None
