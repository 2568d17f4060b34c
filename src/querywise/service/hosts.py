"""What keeps other web sites out: requests name this server as host, and posts come from its own page, as JSON."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from querywise.errors import DataError
from querywise.service.errors import ApiError

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_HOST = re.compile(rb"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::\d{0,5})?", re.ASCII)
_NAME = re.compile(r"[\w-]+(\.[\w-]+)*", re.ASCII)
_ONCE = {each.replace("_", "-").encode(): each for each in ("origin", "content_type", "authorization")}
_REMEMBERED = 256  # values of Host that were found good


@dataclass(slots=True)
class Head:
    """The headers of a request that are checked before its body is read; empty if absent."""

    host: bytes = b""
    origin: bytes = b""
    content_type: bytes = b""
    authorization: bytes = b""
    hosts: int = 0
    repeated: str = ""  # the name of another header that was sent twice

    @classmethod
    def of(cls, headers: Iterable[tuple[bytes, bytes]]) -> Self:
        """Of all headers of a request."""
        head, seen = cls(), set[bytes]()
        for name, value in headers:
            if name == b"host":
                head.host = value
                head.hosts += 1
            elif name in _ONCE:
                if name in seen:
                    head.repeated = name.decode()
                seen.add(name)
                setattr(head, _ONCE[name], value)
        return head


class Hosts:
    """The names of this server.

    These are the address that it listens on, and names it was told. On a loopback address, these are all loopback
    addresses and `localhost`; on all addresses (0.0.0.0), any address: a site of somebody else has a name.
    """

    def __init__(self, listening: str, allowed: Iterable[str] = ()) -> None:
        self._told = {_checked(name) for name in allowed}
        self._names = set(self._told)
        self._addresses: list[_Address] = []
        self._good: set[bytes] = set()
        self.add(listening or "0.0.0.0")

    def add(self, listening: str) -> None:
        """Add a name or an address that the server listens on."""
        address = _address(listening)
        if address is None:
            self._names.add(listening.lower())
        else:
            self._addresses.append(address)
            if address.is_loopback or address.is_unspecified:
                self._names.add("localhost")

    def problem(self, head: Head) -> ApiError | None:
        """Why a request is not for this server."""
        if head.host in self._good and head.hosts == 1:
            return None
        name = host_name(head.host)
        if head.hosts != 1 or name is None:
            found = "no header `Host`" if not head.hosts else f"{head.hosts} headers `Host`, or one that cannot be read"
            message = f"The request has {found}. Send one with the name or the address of this service."
            return ApiError(400, "bad_host", message, "host")
        if not self.has(name):
            message = f"This service is not called {name!r}. Ask it by its address, or have it started with this name."
            return ApiError(421, "wrong_host", message, "host")
        if len(self._good) < _REMEMBERED:
            self._good.add(head.host)
        return None

    def has(self, name: str) -> bool:
        """Whether a name or an address is of this server."""
        if name in self._names:
            return True
        given = _address(name)
        return given is not None and any(
            given == own or own.is_unspecified or (own.is_loopback and given.is_loopback) for own in self._addresses
        )

    def told(self, name: str) -> bool:
        """Whether a name is one of those that the server was told."""
        return name in self._told


def repeated_problem(head: Head) -> ApiError | None:
    """Why a request could mean one thing here and another to a proxy: a header that says who asks, and what, twice."""
    if not head.repeated:
        return None
    return ApiError(
        400, "repeated_header", f"The header `{head.repeated}` is there twice. Send it once.", head.repeated
    )


def other_host(url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> ApiError | None:
    """Why a URL with a host in it is not for the host that the header names, which is checked later."""
    place = url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
    if url.startswith(b"/") or not place or _plain(place) == _plain(Head.of(headers).host):
        return None
    return ApiError(400, "bad_host", "The URL and the header `Host` name different hosts. Send a path alone.", "host")


def post_problem(head: Head, hosts: Hosts | None) -> ApiError | None:
    """Why a request with a body may be the work of another web site."""
    if head.origin:
        place = _plain(head.origin.partition(b"://")[2])
        name = host_name(place)
        if name is None or (place != _plain(head.host) and (hosts is None or not hosts.told(name))):
            found = head.origin.decode("latin-1")
            message = f"The request comes from a page of {found}, and only the page of this service may ask."
            return ApiError(403, "other_origin", message, "origin")
    kind = head.content_type.partition(b";")[0].strip().lower()
    if kind != b"application/json" and (kind or head.origin):
        found = f"The body is sent as {kind.decode('latin-1')}" if kind else "The request has no content type"
        message = f"{found}; send JSON, with the header `Content-Type: application/json`."
        return ApiError(415, "media_type", message, "content-type")
    return None


def host_name(value: bytes) -> str | None:
    """The name or address in a value of `Host`, without its port; None if it has none."""
    found = _HOST.fullmatch(value)
    return None if found is None else found[1].decode().strip("[]").lower().removesuffix(".")


def _plain(place: bytes) -> bytes:
    """A host with its port; the usual ports, which may be left out, are."""
    return place.lower().removesuffix(b":80").removesuffix(b":443")


def _checked(name: str) -> str:
    plain = name.strip("[]").lower().removesuffix(".")
    if _address(plain) is None and _NAME.fullmatch(plain) is None:
        said = f"allowed_host={name!r}: expected a name such as 'search.example.org', without http:// and a port."
        raise DataError(said, arguments=("allowed_host",))
    return plain


def _address(name: str) -> _Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
