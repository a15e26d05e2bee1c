"""The API key that each request carries."""

from __future__ import annotations


def authorization(api_key: str) -> dict[bytes, bytes]:
    """Return the header for a key, without the line end of the file it was read from.

    It is in bytes, so that a key with non-ASCII letters is refused by the service and not by httpx.

    Raises:
        ValueError: No header can carry the key. Checked here because the layers below would repeat
            the key in their message.
    """
    key = api_key.strip()
    if not (key and key.isprintable()):
        raise ValueError("the API key is empty, or has characters that no request can carry")
    return {b"Authorization": f"Bearer {key}".encode()}
