"""Distinguish public internet addresses from all others.

Python's own `is_global` treats several dangerous ranges as global (multicast, 6to4 and NAT64 forms
of private IPv4 addresses). The rule here: an address must be inside the public ranges and outside
an explicit list, and so must every IPv4 address wrapped inside it.
"""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# IANA special-purpose registries (RFC 6890 and successors), multicast and reserved ranges, and the
# addresses at which clouds serve machine credentials.
FORBIDDEN: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's host agent: globally routed, never public
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
    )
)
_PUBLIC_IPV6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
# Interface identifiers 0:5efe and 200:5efe (RFC 5214, section 6.1), and both with the group bit.
_ISATAP, _ISATAP_FLAGS = 0x0000_5EFE, 0x0300_0000


def is_public(address: Address) -> bool:
    """Return whether an address, and every address wrapped inside it, is on the public internet."""
    return all(
        candidate.is_global and not _is_listed(candidate) for candidate in unwrapped(address)
    )


def unwrapped(address: Address) -> Iterator[Address]:
    """Yield the addresses that traffic to ``address`` may reach.

    IPv4-mapped and NAT64 addresses stand for their IPv4 address only; 6to4, Teredo and ISATAP ones
    for both themselves and the address that they carry.
    """
    if isinstance(address, IPv4Address):
        yield address
    elif address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address in _NAT64:
        yield IPv4Address(int(address) & 0xFFFF_FFFF)
    else:
        yield address
        if address.sixtofour is not None:
            yield address.sixtofour
        if address.teredo is not None:
            yield from address.teredo
        interface = int(address) & 0xFFFF_FFFF_FFFF_FFFF
        if (interface >> 32) & ~_ISATAP_FLAGS == _ISATAP:
            yield IPv4Address(interface & 0xFFFF_FFFF)


def _is_listed(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address not in _PUBLIC_IPV6:
        return True
    return address.is_multicast or any(
        address in network for network in FORBIDDEN if network.version == address.version
    )


def parse_address(text: str) -> Address | None:
    """Read an address as `getaddrinfo` or a URL writes it; None if it is a name."""
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None
