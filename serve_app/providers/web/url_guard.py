"""Which addresses a customer may make us connect to, and how such a connection is made.

Every hop is checked anew: syntax, port, and every address the name resolves to. The connection goes
to a checked address, never through a second look-up, and uses no proxy, cookie or credential of
ours. The text of an error never depends on what is at an address that is not public.

UrlError
├── InvalidUrlError   malformed or forbidden: refuse the request
└── UrlFetchError     found only while connecting
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_network
from urllib.parse import quote, urlsplit

import certifi
import httpcore
import idna

from serve_app.domain.telemetry.metrics import URLS_BLOCKED
from serve_app.providers.web.public_address import Address, is_public, parse_address, unwrapped

MAX_URL_CHARACTERS = 2048
MAX_ADDRESSES_TRIED = 3
CONNECT_S = 5.0

_LOCAL_SUFFIXES = (".localhost", ".local", ".internal", ".localdomain", ".home.arpa")
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")

_ALLOW = "The operator can allow its network (AFA_URL_NETWORKS)."
_NOT_PUBLIC = f"The address is not on the public internet. {_ALLOW}"
NOT_FOUND = (
    f"The host of the address cannot be found on the public internet; upload the file. {_ALLOW}"
)
NO_ANSWER = "The host of the address did not answer as it should; try again or upload the file."

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class UrlError(ValueError):
    """No audio can be fetched from an address; the message is for its sender."""


class InvalidUrlError(UrlError):
    """The address is malformed, or literally names a host that may not be reached."""


class UrlFetchError(UrlError):
    """The address could not be fetched, or does not return audio."""


@dataclass(frozen=True, slots=True)
class Target:
    """A checked address, split into its parts.

    Attributes:
        host: ASCII, lower case; IPv6 without brackets.
        target: Path and query, ASCII.
    """

    scheme: str
    host: str
    port: int
    target: str

    @property
    def host_header(self) -> str:
        """Return the Host header."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"http": 80, "https": 443}[self.scheme]
        return name if self.port == usual else f"{name}:{self.port}"

    @property
    def url(self) -> httpcore.URL:
        """Return the address in httpcore's form."""
        return httpcore.URL(scheme=self.scheme, host=self.host, port=self.port, target=self.target)


class UrlGuard:
    """Decides which addresses may be fetched at all.

    Args:
        ports: Allowed ports.
        networks: Networks (CIDR) allowed although they are not public, for development.
    """

    def __init__(self, ports: Iterable[int] = (80, 443), networks: Iterable[str] = ()) -> None:
        self._ports = frozenset(ports)
        self._networks = tuple(ip_network(network) for network in networks)

    def check(self, url: str) -> None:
        """Check what can be checked without the network.

        Raises:
            InvalidUrlError: The address is refused; the message is for its sender.
        """
        self.parse(url)

    def parse(self, url: str) -> Target:
        """Split an address into its parts; see `check`."""
        if len(url) > MAX_URL_CHARACTERS:
            raise InvalidUrlError(f"The address is longer than {MAX_URL_CHARACTERS} characters.")
        if any(character.isspace() or ord(character) < 32 for character in url) or "\\" in url:
            raise InvalidUrlError("The address holds white space or a backslash.")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as fault:
            raise InvalidUrlError("The address is not a well-formed URL.") from fault
        if parts.scheme not in ("http", "https"):
            raise InvalidUrlError("The address must begin with https:// or http://.")
        if "@" in parts.netloc:
            raise InvalidUrlError("The address must not hold a user name or password.")
        host = self._host(parts.hostname or "")
        if port is None:
            port = 443 if parts.scheme == "https" else 80
        if port not in self._ports:
            allowed = " and ".join(map(str, sorted(self._ports)))
            raise InvalidUrlError(
                f"The address uses port {port}; only {allowed} may be used (AFA_URL_PORTS)."
            )
        target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
        if parts.query:
            target += "?" + quote(parts.query, safe="/?%:@!$&'()*+,;=~-._[]")
        return Target(parts.scheme, host, port, target)

    def permits(self, address: Address) -> bool:
        """Return whether a connection to this address may be made."""
        if any(inner in network for inner in unwrapped(address) for network in self._networks):
            return True
        return is_public(address)

    def _host(self, host: str) -> str:
        address = parse_address(host)
        if address is not None:
            if "%" in host or not self.permits(address):
                URLS_BLOCKED.record(1, by="address")
                raise InvalidUrlError(_NOT_PUBLIC)
            return host
        try:
            name = (host if host.isascii() else idna.encode(host, uts46=True).decode()).lower()
        except idna.IDNAError as fault:
            raise InvalidUrlError("The host name of the address is not valid.") from fault
        name = name.removesuffix(".")
        last_label = name.rpartition(".")[2]
        if len(name) > 253 or not _NAME.fullmatch(name) or _NUMERIC_LABEL.fullmatch(last_label):
            raise InvalidUrlError("The host name of the address is not valid.")
        is_local = "." not in name or name.endswith(_LOCAL_SUFFIXES)
        if is_local and not self._networks:
            URLS_BLOCKED.record(1, by="name")
            raise InvalidUrlError(_NOT_PUBLIC)
        return name


@cache
def mozillas_roots() -> ssl.SSLContext:
    """Return the certificates trusted by default; read once."""
    return ssl.create_default_context(cafile=certifi.where())


class GuardedConnector:
    """Opens connections to addresses that a guard permits.

    Args:
        guard: Decides which addresses may be connected to.
        resolve: Resolves name and port to addresses; the system's resolver if None.
        tls: Trusted certificates; Mozilla's (certifi) if None.
    """

    def __init__(
        self, guard: UrlGuard, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._guard = guard
        self._resolve = resolve or resolve_by_system
        self._tls = tls or mozillas_roots()

    async def pool(self, target: Target) -> httpcore.AsyncConnectionPool:
        """Resolve and check the target, and return a pool that connects nowhere else.

        Raises:
            UrlFetchError: The name is unknown, or resolves to an address that is not public.
        """
        return httpcore.AsyncConnectionPool(
            ssl_context=self._tls,
            max_connections=1,
            max_keepalive_connections=0,
            network_backend=_CheckedBackend(await self._addresses(target)),
        )

    async def _addresses(self, target: Target) -> list[str]:
        """Resolve once; refuse the name if any of its addresses is forbidden."""
        if parse_address(target.host) is not None:
            return [target.host]
        try:
            async with asyncio.timeout(CONNECT_S):
                answers = await self._resolve(target.host, target.port)
        except (OSError, UnicodeError, TimeoutError) as fault:
            raise UrlFetchError(NOT_FOUND) from fault
        addresses = [parse_address(answer) for answer in answers]
        if not addresses or not all(a is not None and self._guard.permits(a) for a in addresses):
            URLS_BLOCKED.record(1, by="resolved")
            raise UrlFetchError(NOT_FOUND)
        return [str(address) for address in addresses][:MAX_ADDRESSES_TRIED]


class _CheckedBackend(httpcore.AsyncNetworkBackend):
    """Connects to addresses already checked, whatever the name may now resolve to."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,  # noqa: ARG002 - httpcore's signature, here and below
        port: int,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109
        local_address: str | None = None,  # noqa: ARG002
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,  # noqa: ARG002
    ) -> httpcore.AsyncNetworkStream:
        """Try the checked addresses in turn, within `CONNECT_S` together."""
        share_s = CONNECT_S / len(self._addresses)
        for address in self._addresses[:-1]:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self._backend.connect_tcp(address, port, share_s)
        return await self._backend.connect_tcp(self._addresses[-1], port, share_s)


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Ask the system's resolver."""
    loop = asyncio.get_running_loop()
    answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def public_message(fault: BaseException) -> str:
    """Return what the sender of an address may be told of a failed connection."""
    cause: BaseException | None = fault
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "The host of the address has no valid certificate; upload the file instead."
        cause = cause.__cause__ or cause.__context__
    return NO_ANSWER
