"""TLS with a private CA, client certificates and another name, alike in every language."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.conftest import Drivers, every_face
from conformance.driver import Driver, LockError
from conformance.history import SLACK_MS
from support.servers import Server
from support.tls import CA, CLIENT, CLIENT_KEY, SELF_SIGNED, options, program_with_tls


def started(**tls: Any) -> Iterator[str]:
    """The address of a server with TLS, with these options."""
    if not (program := program_with_tls()):
        pytest.skip("no server on this machine has TLS")
    with Server(tcp=True, program=program, tls=options(**tls)) as server:
        yield server.url


@pytest.fixture(scope="module")
def encrypted() -> Iterator[str]:
    """The address of a server with TLS."""
    yield from started()


@pytest.fixture(scope="module")
def asking() -> Iterator[str]:
    """The address of a server with TLS that asks for a certificate."""
    yield from started(certificates=True)


def use(driver: Driver, url: str, name: str, **options: Any) -> None:
    """Acquires and releases a lock."""
    lock = driver.client([url], timeout_ms=0, **options).lock(name)
    lock.acquire()
    lock.release()


def refusal(driver: Driver, url: str, name: str, **options: Any) -> str:
    """What the node is said to have answered."""
    with pytest.raises(LockError) as refused:
        use(driver, url, name, **options)
    assert refused.value.code == "unavailable"
    ((_, answer),) = refused.value.nodes
    return answer


@every_face
def test_a_private_authority(drivers: Drivers, encrypted: str, face: str, name: str) -> None:
    driver = drivers.start(face)
    assert "tls_ca" in refusal(driver, encrypted, name)
    use(driver, encrypted, name, tls_ca=str(CA))
    other = next(iter(SELF_SIGNED.values()))
    # The address wins.
    use(driver, f"{encrypted}?tls_ca={CA}", name, tls_ca=str(other))
    assert "tls_ca" in refusal(driver, f"{encrypted}?tls_ca={other}", name, tls_ca=str(CA))


@pytest.fixture(scope="module", params=SELF_SIGNED)
def self_signed(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """The address of a server that has signed its own certificate, and the certificate."""
    for url in started(server=request.param):
        yield url, SELF_SIGNED[request.param]


@every_face
def test_a_self_signed_certificate(drivers: Drivers, self_signed: tuple[str, Path], face: str, name: str) -> None:
    """It is accepted if it is listed, whatever its name. Another one is not."""
    url, certificate = self_signed
    driver = drivers.start(face)
    use(driver, url, name, tls_ca=str(certificate))
    for other in {CA, *SELF_SIGNED.values()} - {certificate}:
        assert "TLS" in refusal(driver, url, name, tls_ca=str(other))


@every_face
def test_the_wrong_scheme(drivers: Drivers, encrypted: str, face: str, name: str) -> None:
    """The answer says what to write. A server without TLS waits for more."""
    driver = drivers.start(face)
    assert "begin its address with rediss" in refusal(driver, encrypted.replace("rediss:", "redis:"), name)
    with Server(tcp=True) as plain:
        url = plain.url.replace("redis:", "rediss:")
        # Without an own CA, it would read those of the system within this time.
        answer = refusal(driver, url, name, tls_ca=str(CA))
        assert "begin its address with redis," in answer


def test_certificates_that_cannot_be_read(drivers: Drivers, encrypted: str, name: str, tmp_path: Path) -> None:
    """Their disk hangs: neither the server nor a login is to blame."""
    hanging = tmp_path / "certificates.pem"
    os.mkfifo(hanging)
    driver = drivers.fresh("rust", {"SSL_CERT_FILE": str(hanging)})
    assert "TLS: the certificate files were not read within" in refusal(driver, encrypted, name)


@every_face
def test_many_calls_one_after_the_other(drivers: Drivers, encrypted: str, face: str, name: str) -> None:
    """An event loop that makes them watches the socket itself, and decrypts."""
    client = drivers.start(face).client([encrypted], tls_ca=str(CA), timeout_ms=0, node_timeout_ms=5 * SLACK_MS)
    lock = client.lock(name)
    for _ in range(100):
        lock.acquire()
        lock.release()


@every_face
def test_another_name(drivers: Drivers, encrypted: str, face: str, name: str) -> None:
    driver = drivers.start(face)
    use(driver, encrypted, name, tls_ca=str(CA), tls_server_name="redis.internal")
    assert "tls_server_name" in refusal(driver, encrypted, name, tls_ca=str(CA), tls_server_name="other.internal")


@every_face
def test_a_client_certificate(drivers: Drivers, asking: str, face: str, name: str) -> None:
    driver = drivers.start(face)
    assert "tls_cert" in refusal(driver, asking, name, tls_ca=str(CA))
    use(driver, asking, name, tls_ca=str(CA), tls_cert=str(CLIENT), tls_key=str(CLIENT_KEY))


@every_face
def test_a_file_that_cannot_be_used(drivers: Drivers, face: str, tmp_path: Path) -> None:
    """The client is not made. The error names the option and the file."""
    missing = tmp_path / "missing.pem"
    with pytest.raises(LockError) as refused:
        drivers.start(face).client(["rediss://localhost"], tls_ca=str(missing))
    assert (refused.value.code, refused.value.option) == ("invalid_argument", "tlsCa" if face == "node" else "tls_ca")
    assert str(missing) in refused.value.message


@every_face
def test_options_without_tls(drivers: Drivers, face: str) -> None:
    with pytest.raises(LockError, match="without TLS"):
        drivers.start(face).client(["redis://localhost"], tls_ca=str(CA))
