"""Which client an address stands for, and what a proxy says about it.

A client is an IPv4 address, or the first 64 bits of an IPv6 address: that much every household has, so counting single
addresses would count nothing. Link-local addresses all begin alike and are taken whole.

`X-Forwarded-For` is believed only when the connection comes from a proxy that `--trusted-proxy` names, because anybody
can write that header. It is read from its end: each proxy appends the address that it saw, so the last one that is not
a trusted proxy is the client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.types import Scope

from ...errors import UnbraidError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
_HOUSEHOLD = 64
_LONGEST = 128
"""Characters that an address may have, with the name of a network card in it."""
_FORWARDED = b"x-forwarded-for"


def address_of(text: str) -> Address | None:
    """An address. One of IPv4 that is written as IPv6 is one of IPv4."""
    return _address(text) if len(text) <= _LONGEST else None


@lru_cache(1024)
def _address(text: str) -> Address | None:
    try:
        address = ip_address(text.strip().removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


@lru_cache(1024)
def client_at(text: str) -> str:
    """The client that an address stands for."""
    address = address_of(text)
    if not isinstance(address, IPv6Address) or address.is_link_local:
        return str(address or text)
    return str(IPv6Network((int(address), _HOUSEHOLD), strict=False))


def proxies_of(texts: Iterable[str]) -> tuple[Network, ...]:
    """The networks of trusted proxies."""
    try:
        return tuple(ip_network(each.strip(), strict=False) for each in texts)
    except ValueError as error:
        raise UnbraidError(f"--trusted-proxy takes an address or a network, such as 10.0.0.0/8: {error}") from error


def is_trusted(text: str, proxies: Sequence[Network]) -> bool:
    """Whether an address belongs to a trusted proxy."""
    address = address_of(text) if proxies else None
    return address is not None and any(address in network for network in proxies)


def client_of_scope(scope: Scope, proxies: Sequence[Network]) -> str:
    """The client that sent a request."""
    return client_at(sent_from(scope, proxies))


def sent_from(scope: Scope, proxies: Sequence[Network]) -> str:
    """The address that a request was sent from."""
    peer = str((scope.get("client") or ("",))[0])
    if not proxies or not is_trusted(peer, proxies):
        return peer
    chain = b",".join(value for name, value in scope["headers"] if name == _FORWARDED).decode("latin-1")
    for hop in reversed([hop.strip() for hop in chain.split(",")]):
        address = _without_port(hop)
        if address_of(address) is None:
            break  # what stands before it was not written by a proxy of ours
        if not is_trusted(address, proxies):
            return address
    return peer


def _without_port(hop: str) -> str:
    """Some proxies write `1.2.3.4:567` or `[::1]:567`."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
