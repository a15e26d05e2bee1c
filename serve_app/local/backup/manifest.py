"""The parts of a backup, with the digest of each.

Invariant: the manifest is written last, so a backup without one was not finished; nothing is
restored before every part has been compared with it.
"""

import hashlib
from collections.abc import Callable
from datetime import datetime

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import from_json

from serve_app.domain.objects import ObjectNotFoundError
from serve_app.store.client import LEDGER_FORMAT
from serve_app.store.objects import ObjectStore, check_key

FORMAT = 2
"""Format of the backup; format 1 had no library."""

MANIFEST = "manifest.json"
LEDGER = "ledger.rdb"
SECRETS = "secrets.json"
OBJECTS = "objects/"
JOURNAL = "journal/"
LIBRARY = "library/"

Say = Callable[[str], None]


class BackupError(RuntimeError):
    """A backup cannot be taken or restored; the message says what to do."""


class Part(BaseModel):
    """One file of a backup."""

    model_config = ConfigDict(frozen=True)

    size_bytes: int
    sha256: str


class Counts(BaseModel):
    """How much the ledger and the library held."""

    model_config = ConfigDict(frozen=True)

    accounts: int
    entries: int
    open_holds: int
    api_keys: int
    webhooks: int
    jobs: int
    assets: int
    tracks: int = 0


class Secrets(BaseModel):
    """Secrets that are needed to restore an installation.

    Attributes:
        pepper: Secret that API keys and webhook secrets are derived with.
        keys: The local service's own API keys, by tier.
    """

    model_config = ConfigDict(frozen=True)

    pepper: str
    keys: dict[str, str]


class Manifest(BaseModel):
    """A whole backup.

    Attributes:
        format: Format of the backup.
        afa: Version of afa that took it.
        taken_at: Time that the backup is of.
        ledger_format: Format of the data in Redis.
        shards: Number of the ledger's shards.
        settings: Settings that were not the defaults, without secrets.
        secret_settings: Names of settings that were set but are not in the backup.
        missing: Objects that the ledger names but the store no longer had.
        problems: What the audit of the ledger found at that time.
        parts: The parts by name.
    """

    model_config = ConfigDict(frozen=True)

    format: int
    afa: str
    taken_at: datetime
    ledger_format: int
    shards: int
    settings: dict[str, str]
    secret_settings: list[str]
    counts: Counts
    missing: list[str]
    problems: list[str]
    parts: dict[str, Part]

    @field_validator("parts")
    @classmethod
    def _is_whole(cls, parts: dict[str, Part]) -> dict[str, Part]:
        if not {LEDGER, SECRETS} <= parts.keys():
            raise ValueError("without a ledger, or without secrets")
        return {check_key(name): part for name, part in parts.items()}

    @property
    def size_bytes(self) -> int:
        """Size of all parts together."""
        return sum(part.size_bytes for part in self.parts.values())

    def named(self, folder: str) -> dict[str, Part]:
        """Return the parts of a folder, by their names within it."""
        return {
            name.removeprefix(folder): part
            for name, part in self.parts.items()
            if name.startswith(folder)
        }


async def read_manifest(source: ObjectStore) -> Manifest:
    """Read the manifest of a backup.

    Raises:
        BackupError: There is none, it is damaged, or a later afa wrote it.
    """
    try:
        plain = from_json(await read_whole(source, MANIFEST), allow_inf_nan=False)
    except ObjectNotFoundError as error:
        raise BackupError(
            f"there is no {MANIFEST}: this is not a backup, or it was not finished"
        ) from error
    except ValueError as error:
        raise BackupError(f"{MANIFEST} is damaged: use another backup") from error
    newest = {"format": FORMAT, "ledger_format": LEDGER_FORMAT}
    try:
        if any(int(plain[name]) > number for name, number in newest.items()):
            raise BackupError(
                f"afa {plain['afa']} took this backup, in a format that this afa does not know: "
                "install that version or a later one"
            )
        return Manifest.model_validate(plain)
    except (KeyError, TypeError, ValueError) as error:
        raise BackupError(f"{MANIFEST} is damaged: use another backup") from error


async def check_parts(source: ObjectStore, manifest: Manifest, say: Say) -> None:
    """Read every part and compare it with the manifest.

    Raises:
        BackupError: Some parts are missing or were changed.
    """
    damaged = []
    for number, (name, part) in enumerate(manifest.parts.items(), 1):
        say(f"checking part {number} of {len(manifest.parts)}")
        if await digest_of(source, name) != part.sha256:
            damaged.append(name)
    if damaged:
        raise BackupError(
            f"{len(damaged)} of {len(manifest.parts)} parts are missing or were changed, the first "
            f"is {damaged[0]}: use another backup"
        )


async def digest_of(source: ObjectStore, key: str) -> str | None:
    """Return the hex SHA-256 of an object; None if there is none."""
    digest = hashlib.sha256()
    try:
        async for chunk in source.read(key):
            digest.update(chunk)
    except ObjectNotFoundError:
        return None
    return digest.hexdigest()


async def read_secrets(source: ObjectStore) -> Secrets:
    """Read the secrets of a backup.

    Raises:
        BackupError: They are damaged; the message does not contain them.
    """
    try:
        return Secrets.model_validate_json(await read_whole(source, SECRETS))
    except ValueError:
        raise BackupError(f"{SECRETS} is damaged: use another backup") from None


async def read_whole(source: ObjectStore, key: str) -> bytes:
    """Read a whole small object."""
    return b"".join([chunk async for chunk in source.read(key)])
