"""Clients of redis-py in the place of addresses."""

from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from server import Server
from support.shards import Shards
from support.tls import CA, options, program_with_tls

import redlock
from redlock import _clients
from redlock import asyncio as aio

SECRET = "S3CR3T@/:% ü"
SENTINELS = [("a", 1), ("::1", 26379)]
# These have no types, or no complete ones.
Sentinel: Any = redis.sentinel.Sentinel
AsyncSentinel: Any = redis.asyncio.sentinel.Sentinel
Redis: Any = redis.Redis
AsyncPool: Any = redis.asyncio.BlockingConnectionPool


def pool(**given: Any) -> Any:
    return Redis(**given).connection_pool


def address(*nodes: object, **given: Any) -> str:
    (url,) = _clients.read(nodes, given)
    assert isinstance(url, str)
    assert SECRET not in repr(url)
    return url[:]


@pytest.mark.parametrize(
    ("client", "url"),
    [
        (redis.Redis(), "redis://localhost:6379/0"),
        (Redis.from_url("redis://u:p%40@h/2"), "redis://u:p%40@h:6379/2"),
        (redis.asyncio.Redis(host="h", password="p"), "redis://:p@h:6379/0"),
        (redis.ConnectionPool(host="h"), "redis://h:6379/0"),
        (AsyncPool.from_url("rediss://h"), "rediss://h:6379/0"),
        (redis.Redis(unix_socket_path="/a b", username="u", password="p"), "unix:///a%20b?db=0&user=u&pass=p"),
        (
            redis.Redis(ssl=True, ssl_ca_certs="/ca", ssl_certfile="/c", ssl_keyfile="/k"),
            "rediss://localhost:6379/0?tls_ca=%2Fca&tls_cert=%2Fc&tls_key=%2Fk",
        ),
        (redis.Redis(ssl=True, ssl_cert_reqs="optional"), "rediss://localhost:6379/0"),
        (
            Sentinel(SENTINELS, password="p").master_for("m", db=2),
            "redis+sentinel://:p@a:1,[::1]:26379/m/2",
        ),
        (
            AsyncSentinel(SENTINELS, ssl=True, sentinel_kwargs={"ssl": True}).master_for("m"),
            "rediss+sentinel://a:1,[::1]:26379/m/0",
        ),
        (
            redis.asyncio.RedisCluster(host="h", password="p", ssl=True, ssl_ca_certs="/ca"),
            "rediss+cluster://:p@h:6379?tls_ca=%2Fca",
        ),
    ],
)
def test_the_address_of_a_client(client: object, url: str) -> None:
    assert address(client) == url


class Tunnel(redis.Connection):
    """Connects in a way of its own."""


Provider = redis.UsernamePasswordCredentialProvider


@pytest.mark.parametrize(
    ("client", "named", "advised"),
    [
        (redis.Redis(ssl=True, ssl_cert_reqs="none"), "ssl_cert_reqs", "tls_ca"),
        (redis.Redis(ssl=True, ssl_ca_data=SECRET), "ssl_ca_data", "tls_ca"),
        (redis.Redis(ssl=True, ssl_keyfile="/k", ssl_password=SECRET), "ssl_password", "tls_key"),
        (redis.Redis(ssl=True, ssl_ciphers="DES"), "ssl_ciphers", "safe"),
        (redis.Redis(redis_connect_func=print), "redis_connect_func", "credentials"),
        (redis.ConnectionPool(connection_class=Tunnel), "connection_class Tunnel", "address"),
        (Sentinel(SENTINELS), "Sentinel", "master_for"),
        (Sentinel(SENTINELS).slave_for("m"), "slave_for", "master_for"),
        (Sentinel(SENTINELS, sentinel_kwargs={"password": SECRET}).master_for("m"), "sentinel_kwargs", "password_file"),
        (
            redis.asyncio.RedisCluster(host="h", address_remap=lambda address: address),
            "address_remap",
            "announce",
        ),
    ],
)
def test_what_cannot_be_carried_over_is_refused(client: Any, named: str, advised: str) -> None:
    for nodes in (client, ["memory://a", client]):
        with pytest.raises(redlock.LockInvalidArgument, match=f"cannot carry over {named}.*{advised}") as refused:
            redlock.Redlock(nodes)
        assert refused.value.option == "nodes"
        assert SECRET not in str(refused.value)


def test_an_option_takes_the_place_of_what_cannot_be_carried_over() -> None:
    for client in (redis.Redis(ssl=True, ssl_ca_data=SECRET), redis.Redis(ssl=True, ssl_cert_reqs="none")):
        assert address(client, tls_ca="/ca") == "rediss://localhost:6379/0"
    given: dict[str, Any] = {"password_file": "/p"}
    _clients.read([redis.Redis(credential_provider=Provider())], given)
    assert given == {"password_file": "/p"}


def acquires(nodes: Any, **options: Any) -> redlock.Redlock:
    client = redlock.Redlock(nodes, timeout=0, **options)
    assert SECRET not in repr(client)
    return client


@pytest.fixture
def user(server: Server, name: str) -> str:
    server.command("ACL", "SETUSER", name, "on", f">{SECRET}", "~*", "&*", "+@all")
    return name


@pytest.mark.parametrize(
    "make",
    [redis.Redis, redis.asyncio.Redis, pool],
    ids=["client", "asyncio", "pool"],
)
def test_the_login_and_the_database_are_those_of_the_client(
    server: Server, user: str, name: str, make: Callable[..., Any]
) -> None:
    theirs = make(unix_socket_path=str(server.socket), username=user, password=SECRET, db=3)
    with redis.Redis(unix_socket_path=str(server.socket), db=3) as looking:
        with acquires(theirs).lock(name):
            assert looking.exists(name)
            assert f"user={user} " in server.command("CLIENT", "LIST").decode()
        assert not looking.exists(name)


async def test_asyncio_and_the_default_client_take_clients(server: Server, user: str, name: str) -> None:
    theirs = redis.asyncio.Redis(unix_socket_path=str(server.socket), username=user, password=SECRET)
    async with aio.Redlock(theirs) as client, client.lock(name):
        assert server.has(name)
    redlock.configure(theirs)
    try:
        with redlock.lock(name):
            assert server.has(name)
    finally:
        redlock.configure()


def test_several_clients_are_several_nodes(server: Server, name: str) -> None:
    client = acquires([redis.Redis(unix_socket_path=str(server.socket)), "memory://one", "memory://two"])
    with client.lock(name):
        view = client.inspect(name)
        assert view.state == "held"
        assert [node.node for node in view.nodes] == [f"unix://{server.socket}", "memory://one", "memory://two"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_provider_logs_in(server: Server, user: str, name: str, is_async: bool) -> None:
    class Later(redis.CredentialProvider):
        async def get_credentials_async(self) -> tuple[str, str]:
            return user, SECRET

    provider = Later() if is_async else Provider(user, SECRET)
    # Another server does not need it.
    theirs = redis.Redis(unix_socket_path=str(server.socket), credential_provider=provider)
    with acquires([theirs]).lock(name):
        assert f"user={user} " in server.command("CLIENT", "LIST").decode()


def test_a_password_alone_is_that_of_the_default_user() -> None:
    given: dict[str, Any] = {}
    _clients.read([redis.Redis(credential_provider=Provider(password=SECRET))], given)
    assert given["credentials"]()[:2] == ("", SECRET)


@pytest.mark.parametrize("other", ["memory://a", redis.Redis(), redis.Redis(credential_provider=Provider())])
def test_nodes_without_a_login_do_not_get_that_of_another_ones_provider(other: Any) -> None:
    theirs = redis.Redis(credential_provider=Provider("u", SECRET))
    with pytest.raises(redlock.LockInvalidArgument, match="credential_provider"):
        redlock.Redlock([theirs, other])
    assert len(_clients.read([theirs, redis.Redis(password="p")], {})) == 2


def test_tls_is_read(name: str) -> None:
    if not (program := program_with_tls()):
        pytest.skip("no server on this machine has TLS")
    with Server(tcp=True, program=program, tls=options()) as server:
        theirs = redis.Redis(host="127.0.0.1", port=server.port or 0, ssl=True, ssl_ca_certs=str(CA))
        with acquires(theirs).lock(name):
            assert server.has(name)


def test_the_seeds_of_a_cluster_are_read(name: str) -> None:
    with Shards(3) as shards:
        port = shards.servers[0].port or 0
        with redis.RedisCluster(host="127.0.0.1", port=port) as theirs, acquires(theirs).lock(name) as lock:
            assert lock.held
            assert theirs.exists(name)
