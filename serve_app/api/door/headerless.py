"""Callers whose programs cannot send a custom header: those of the AcousticBrainz mount.

Their key comes by HTTP Basic, from an address such as `http://x:KEY@host/acousticbrainz/`. Programs
on this machine need none: they count as the owner of the key that `afa up` prints.

Invariant: no web page gets in this way, even if its browser runs on this machine and remembers the
password.
"""

import base64
from ipaddress import ip_address
from urllib.parse import urlsplit

from fastapi import Request

from serve_app.api.services import ApiServices
from serve_app.domain.keys import Caller
from serve_app.domain.tiers import LOCAL, LOCAL_OWNER

MOUNT = "/acousticbrainz/"
FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-real-ip")
OF_A_PAGE = ("origin", "sec-fetch-site")
"""Browsers add one or both of these to a page's requests to an address of this machine."""

MOUNTED_SCOPES = frozenset({"read", "assets"})

HOW_TO_AUTHENTICATE = "or write it into the address: http://x:afa_live_…@HOST/acousticbrainz/"


def is_from_here(request: Request) -> bool:
    """Return whether a request comes from this machine, and not through a proxy."""
    if request.client is None or any(name in request.headers for name in FORWARDED):
        return False
    return is_loopback(request.client.host)


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address; names are not."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def is_headerless(request: Request) -> bool:
    """Return whether a request is from a program that cannot send the header."""
    is_of_a_page = any(name in request.headers for name in OF_A_PAGE)
    return request.scope["path"].startswith(MOUNT) and not is_of_a_page


def key_without_header(request: Request) -> str | None:
    """Return the key that was sent by HTTP Basic: the password, or the name without one."""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic" or not is_headerless(request):
        return None
    try:
        name, _, password = base64.b64decode(encoded).decode().partition(":")
    except ValueError:
        return ""
    return password or name


def is_named_local(request: Request) -> bool:
    """Return whether a request names this machine by `localhost` or a loopback number."""
    try:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return False
    return host == "localhost" or is_loopback(host)


async def local_user(request: Request, services: ApiServices) -> Caller | None:
    """Return the local user if the caller is a program on this machine; None otherwise.

    Other names that resolve to this machine are not accepted: one may be the origin of a page,
    whose requests to it then look like those of a program.
    """
    is_anonymous = is_headerless(request) and "authorization" not in request.headers
    if not (is_anonymous and is_from_here(request) and is_named_local(request)):
        return None
    if await services.accounts.tier_of(LOCAL_OWNER) != LOCAL:
        return None
    return Caller("", LOCAL_OWNER, LOCAL_OWNER, LOCAL, MOUNTED_SCOPES, is_test=False)
