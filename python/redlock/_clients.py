"""The nodes of redis-py's clients: where they connect to, and how they log in.

Neither redis-py nor valkey-py, which is a fork of it, is imported: only attributes and options that they document are
read. Redlock opens connections of its own, so what only concerns theirs, such as pools and timeouts, is passed over.
What would change the server, the login or the checks of TLS, and cannot be carried over, is refused.
"""

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, NoReturn
from urllib.parse import quote

from redlock.errors import LockInvalidArgument
from redlock.options import Credentials, Login

_PACKAGES = ("redis", "valkey")

_PORT = 6379

_SEEDS_MOST = 15
"""An address lists no more. Any of a cluster's servers knows the others."""

_LASTS = 300
"""For how many seconds a login of a `CredentialProvider` is kept. It does not say, and redis-py asks it at every
connect."""

_ALWAYS_CHECKED = "certificates are always checked; pass tls_ca, the file of the CA or of a self-signed certificate"

_TLS_FILES = {"ssl_ca_certs": "tls_ca", "ssl_certfile": "tls_cert", "ssl_keyfile": "tls_key"}

_TLS_REFUSED = {
    "ssl_ca_data": ("tls_ca", "write the certificates to a file, and pass tls_ca"),
    "ssl_ca_path": ("tls_ca", "write the certificates to one file, and pass tls_ca"),
    "ssl_password": ("tls_key", "pass tls_key and tls_cert, with a key that is not encrypted"),
    "ssl_validate_ocsp": ("", "it is not asked whether certificates were revoked"),
    "ssl_validate_ocsp_stapled": ("", "it is not asked whether certificates were revoked"),
    "ssl_ciphers": ("", "TLS 1.2 and 1.3 are used with the ciphers that are safe"),
    "ssl_include_verify_flags": ("", "certificates are checked in one way"),
    "ssl_exclude_verify_flags": ("", "certificates are checked in one way"),
}
"""What is refused unless it is left out or empty, the option of ours that replaces it, and the rest of the message."""

_TLS_1_3 = 772


class Url(str):
    """An address that may have a password in it, so its representation does not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<address>"


def read(nodes: Iterable[object], options: dict[str, Any]) -> list[object]:
    """Replace each client among `nodes` by its address. What has no place in an address is added to `options`.

    The options of the caller are stronger. What is neither a client nor a text is left as it is.
    """
    found = [_Node(node, options) if _is_client(node) else node for node in nodes]
    clients = [node for node in found if isinstance(node, _Node)]
    providers = {id(client.provider): client.provider for client in clients if client.provider is not None}
    if providers and options.get("credentials") is None and options.get("password_file") is None:
        others = [node for node in found if not isinstance(node, _Node) or node.has_no_login]
        if len(providers) > 1 or others:
            _refuse("credential_provider", "all nodes of a client have the same; pass credentials for all of them")
        options["credentials"] = _credentials(next(iter(providers.values())))
    return [node.url if isinstance(node, _Node) else node for node in found]


def _is_client(node: object) -> bool:
    # Of a class, these would be functions. Iterating over a client, or asking it for an item, would send commands.
    if isinstance(node, type):
        return False
    return any(hasattr(node, name) for name in ("connection_pool", "nodes_manager", "sentinels")) or _is_pool(node)


def _is_pool(node: object) -> bool:
    return isinstance(getattr(node, "connection_kwargs", None), Mapping) and hasattr(node, "connection_class")


class _Node:
    """One client."""

    def __init__(self, client: Any, options: Mapping[str, object]) -> None:  # noqa: ANN401 - of no class that is imported
        if hasattr(client, "nodes_manager"):
            self._of_cluster(client, options)
        elif _is_pool(client):
            self._of_pool(client, options)
        elif hasattr(client, "connection_pool"):
            self._of_pool(client.connection_pool, options)
        else:
            _refuse("Sentinel", 'pass sentinel.master_for("mymaster"), which names the primary')

    def _of_cluster(self, client: Any, options: Mapping[str, object]) -> None:  # noqa: ANN401
        manager = client.nodes_manager
        kwargs = client.get_connection_kwargs()
        if getattr(manager, "address_remap", None) is not None:
            _refuse("address_remap", "the addresses that the cluster's servers announce are used")
        is_encrypted = bool(kwargs.get("ssl")) or "SSLConnection" in _bases(kwargs.get("connection_class"))
        servers = [(node.host, node.port) for node in manager.startup_nodes.values()][:_SEEDS_MOST]
        # Its own function is in the place of the program's.
        kwargs = dict(kwargs) | {"redis_connect_func": getattr(client, "user_on_connect_func", None)}
        self._set("+cluster", servers, "", kwargs, _tls(kwargs, options) if is_encrypted else None)

    def _of_pool(self, pool: Any, options: Mapping[str, object]) -> None:  # noqa: ANN401
        kwargs = pool.connection_kwargs
        bases = _bases(pool.connection_class)
        tls = _tls(kwargs, options) if "SSLConnection" in bases else None
        db = int(kwargs.get("db") or 0)
        if hasattr(pool, "sentinel_manager"):
            servers = _sentinels(pool, tls, options)
            self._set("+sentinel", servers, f"/{_encoded(pool.service_name)}/{db}", kwargs, tls)
        elif "UnixDomainSocketConnection" in bases:
            self._set_path(kwargs, db)
        else:
            server = (kwargs.get("host") or "localhost", kwargs.get("port") or _PORT)
            self._set("", [server], f"/{db}", kwargs, tls)

    def _set(
        self,
        kind: str,
        servers: list[tuple[str, int]],
        path: str,
        kwargs: Mapping[str, Any],
        tls: dict[str, str] | None,
    ) -> None:
        user, password = self._login(kwargs)
        login = f"{user}:{password}@" if user or password else ""
        scheme = "redis" if tls is None else "rediss"
        hosts = ",".join(_place(host, port) for host, port in servers)
        self.url = Url(f"{scheme}{kind}://{login}{hosts}{path}{_query(tls or {})}")

    def _set_path(self, kwargs: Mapping[str, Any], db: int) -> None:
        user, password = self._login(kwargs)
        parameters = {"db": str(db), "user": user, "pass": password}
        query = "&".join(f"{name}={value}" for name, value in parameters.items() if value)
        self.url = Url(f"unix://{quote(str(kwargs.get('path', '')))}?{query}")

    def _login(self, kwargs: Mapping[str, Any]) -> tuple[str, str]:
        if kwargs.get("redis_connect_func") is not None:
            _refuse("redis_connect_func", "pass credentials if it logs in; redlock opens its own connections")
        self.provider = kwargs.get("credential_provider")
        user, password = _encoded(kwargs.get("username") or ""), _encoded(kwargs.get("password") or "")
        self.has_no_login = self.provider is None and not password
        return user, password


def _bases(connection_class: type | None) -> set[str]:
    """Return the names of a class of connections and of its bases. Refuses one of another package."""
    if connection_class is None:
        return set()
    if connection_class.__module__.split(".")[0] not in _PACKAGES:
        advice = "write the address of the server; for tests, redlock.testing has a server in memory"
        _refuse(f"connection_class {connection_class.__qualname__}", advice)
    return {base.__name__ for base in connection_class.__mro__}


def _tls(kwargs: Mapping[str, Any], options: Mapping[str, object]) -> dict[str, str]:
    """Return the options of TLS that are in the address."""
    # The constants of the module ssl are numbers. A server always shows a certificate, so an optional one is required.
    is_checked = kwargs.get("ssl_cert_reqs", "required") in {"required", "optional", 1, 2}
    if not is_checked and options.get("tls_ca") is None:
        _refuse("ssl_cert_reqs", _ALWAYS_CHECKED)
    for name, (ours, advice) in _TLS_REFUSED.items():
        if kwargs.get(name) and options.get(ours) is None:
            _refuse(name, advice)
    if (kwargs.get("ssl_min_version") or 0) >= _TLS_1_3:
        _refuse("ssl_min_version", "TLS 1.2 and 1.3 are used; let the server refuse 1.2")
    given = {ours: kwargs.get(name) for name, ours in _TLS_FILES.items() if options.get(ours) is None}
    return {name: str(path) for name, path in given.items() if path}


def _sentinels(pool: Any, tls: dict[str, str] | None, options: Mapping[str, object]) -> list[tuple[str, int]]:  # noqa: ANN401
    """Return the addresses of the sentinels, whose login and TLS can only be those that an address has."""
    manager = pool.sentinel_manager
    if not pool.is_master:
        _refuse("slave_for", "a replica has no locks; pass sentinel.master_for(...)")
    if getattr(manager, "_force_master_ip", None) is not None:
        _refuse("force_master_ip", "the address that the sentinels name is used")
    servers: list[tuple[str, int]] = []
    for sentinel in manager.sentinels:
        kwargs = sentinel.connection_pool.connection_kwargs
        if any(kwargs.get(name) for name in ("username", "password", "credential_provider")):
            advice = "write redis+sentinel://host1,host2/mymaster?sentinel_user=...&sentinel_password_file=..."
            _refuse("sentinel_kwargs with a login", advice)
        is_encrypted = "SSLConnection" in _bases(sentinel.connection_pool.connection_class)
        if (_tls(kwargs, options) if is_encrypted else None) != tls:
            _refuse("sentinel_kwargs with other options of TLS", "the primary and its sentinels have the same")
        servers.append((kwargs["host"], kwargs["port"]))
    return servers


def _credentials(provider: Any) -> Credentials:  # noqa: ANN401
    """Make the option `credentials` of a `CredentialProvider`."""

    def login() -> Login | Awaitable[Login]:
        try:
            return _login(provider.get_credentials())
        except NotImplementedError:
            # It is for asyncio alone.
            return awaited()

    async def awaited() -> Login:
        return _login(await provider.get_credentials_async())

    return login


def _login(given: tuple[str] | tuple[str, str]) -> Login:
    """Return a login of theirs as one of ours. A password alone is that of the default user."""
    return ("", given[0], _LASTS) if len(given) == 1 else (given[0], given[1], _LASTS)


def _place(host: object, port: object) -> str:
    text = str(host)
    return f"[{text}]:{port}" if ":" in text else f"{quote(text, safe='')}:{port}"


def _query(parameters: Mapping[str, str]) -> str:
    query = "&".join(f"{name}={_encoded(value)}" for name, value in parameters.items())
    return f"?{query}" if query else ""


def _encoded(given: object) -> str:
    text = given if isinstance(given, str | bytes) else str(given)
    # The engine refuses what is not UTF-8, and does not show it. An exception of Python would have it.
    return quote(text, safe="", errors="surrogatepass") if isinstance(text, str) else quote(text, safe="")


def _refuse(what: str, advice: str) -> NoReturn:
    raise LockInvalidArgument(f"cannot carry over {what} from a client; {advice}", option="nodes")
