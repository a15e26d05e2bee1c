"""Where a library is stored: a folder, or a prefix of an S3 store that all nodes reach."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit


@dataclass(frozen=True, slots=True)
class LibraryPlace:
    """Address of the datasets, and what is needed to read them.

    Attributes:
        uri: A folder's path, or ``s3://bucket/prefix``.
        options: Options of the S3 store; credentials come from the environment or the machine.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, url: str) -> "LibraryPlace":
        """Read ``file:///folder`` or ``s3://bucket/prefix?endpoint=…&region=…``.

        Raises:
            ValueError: It has another scheme, no bucket, or an unknown parameter.
        """
        parts = urlsplit(url)
        if parts.scheme == "file":
            return cls(unquote(parts.path))
        if parts.scheme != "s3" or not parts.hostname:
            raise ValueError("the library must be file:///folder or s3://bucket/prefix")
        query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
        endpoint, region = query.pop("endpoint", None), query.pop("region", None)
        if query:
            raise ValueError(f"unknown parameters of the library: {', '.join(sorted(query))}")
        options = {}
        if endpoint is not None:
            options["aws_endpoint"] = endpoint
            options["allow_http"] = str(endpoint.startswith("http://")).lower()
        if region is not None:
            options["aws_region"] = region
        return cls(f"s3://{parts.hostname}{parts.path}".rstrip("/"), options)

    @property
    def folder(self) -> Path | None:
        """The folder, if it is one on this machine."""
        return None if self.uri.startswith("s3://") else Path(self.uri)

    def dataset(self, name: str) -> str:
        """Return the address of one dataset."""
        return f"{self.uri}/{name}.lance"
