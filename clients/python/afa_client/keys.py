"""The key that each request carries."""

from __future__ import annotations


def authorization(api_key: str) -> dict[bytes, bytes]:
    """Give the header, of a key without the line end of the file that it was read from.

    In bytes, so that the service refuses a key of other letters, and not the header.

    Raises:
        ValueError: No header carries it. What refuses it further down repeats it in its message.
    """
    key = api_key.strip()
    if not (key and key.isprintable()):
        raise ValueError("the API key is empty, or has characters that no request can carry")
    return {b"Authorization": f"Bearer {key}".encode()}
