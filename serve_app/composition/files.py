"""The data folder of a local installation: where its embedded Redis, secrets and uploads are."""

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from afa.cards import OWN_CARDS
from configs.settings import Settings
from models.checkpoints.stored import WEIGHTS
from serve_app.providers.catalog.index import CURRENT
from serve_app.providers.fingerprints.manifest import FILE_NAME
from serve_app.store.mirror import Mirror, Place


class NotRunningError(RuntimeError):
    """No service runs here."""


class NotSharedError(RuntimeError):
    """Something that must last would be on the disk of a single node."""


class NoPepperError(NotSharedError):
    """Each node would hash keys with its own secret."""


def below(url: str, name: str) -> str:
    """Return the URL of a folder in a store or folder, keeping the part after ``?``."""
    parts = urlsplit(url if "://" in url else Path(url).absolute().as_uri())
    return parts._replace(path=f"{parts.path.rstrip('/')}/{name}").geturl()


def require_shared_storage(settings: Settings) -> None:
    """Check that everything that must last is on storage that every node can reach.

    Raises:
        NotSharedError: Something is not, and would be lost with its node's disk.
    """
    if settings.redis_url is None:
        return
    places = {
        "AFA_SHARED": settings.shared or "",
        "AFA_OBJECT_STORE": settings.object_store,
        "AFA_JOURNAL_STORE": settings.journal_store,
        "AFA_LIBRARY": settings.library,
    }
    local = [name for name, place in places.items() if place is not None and "://" not in place]
    if local:
        raise NotSharedError(
            f"{', '.join(local)}: not on storage that every node sees, and a node's disk goes with "
            "the node. Set AFA_SHARED to s3://bucket/prefix, or to file:///folder of a file system "
            "that every node mounts. To try this on one machine, use `afa up`."
        )


def require_shared(settings: Settings) -> None:
    """Check that nodes share all that must last, as `require_shared_storage`, and the pepper.

    Raises:
        NotSharedError: Something is not on shared storage.
        NoPepperError: The pepper is not set.
    """
    require_shared_storage(settings)
    if settings.redis_url is not None and settings.key_pepper is None:
        raise NoPepperError(
            "AFA_KEY_PEPPER: not set, so each node would make a secret of its own, and API keys "
            "would be lost with the node. Set it to the same on every node, and keep it twice; "
            "`openssl rand -hex 32` makes one."
        )


TRACKS = (Place("catalog", CURRENT), Place("fingerprints", FILE_NAME))


def tracks_mirror(url: str, folder: Path) -> Mirror:
    """Return what publishes a folder's catalog and fingerprints to ``url``, or fetches them."""
    return Mirror(url, folder, TRACKS, "catalog and fingerprints")


def checkpoint_mirror(url: str, model_dir: Path) -> Mirror:
    """Return what publishes the checkpoints of a model folder to ``url``, or fetches them.

    What torch has compiled for them here (`pipelines.analysis.networks.compiled`) is included.
    Checkpoints of a node that are not published stay.
    """
    pulled = sorted(path.parent.name for path in model_dir.glob(f"*/{WEIGHTS}"))
    places = [Place("", OWN_CARDS), *(Place(name, WEIGHTS) for name in pulled)]
    return Mirror(url, model_dir, places, "checkpoints", is_whole=False)


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Paths and small files below the data folder; only the owner may enter the folder."""

    data_dir: Path

    @property
    def session_path(self) -> Path:
        """File with the address, keys and process ids of the running service."""
        return self.data_dir / "session.json"

    @property
    def lock_path(self) -> Path:
        """Lock file that a start and then its service holds; it names the process."""
        return self.data_dir / "up.lock"

    @property
    def scan_lock_path(self) -> Path:
        """Lock file of the process that scans into the library; it names the process."""
        return self.data_dir / "scan.lock"

    @property
    def log_path(self) -> Path:
        """File with what the service prints."""
        return self.data_dir / "afa.log"

    @property
    def catalog_dir(self) -> Path:
        """Folder of the catalog of track identities."""
        return self.data_dir / "catalog"

    @property
    def pulled_dir(self) -> Path:
        """Folder of what `afa catalog pull` has fetched and converted."""
        return self.data_dir / "pulled"

    @property
    def fingerprint_dir(self) -> Path:
        """Folder of the fingerprint index."""
        return self.data_dir / "fingerprints"

    def ledger_url(self, settings: Settings) -> str:
        """Return the ledger's address: the setting, otherwise that of the embedded Redis.

        Raises:
            NotRunningError: There is neither.
        """
        if settings.redis_url is not None:
            return settings.redis_url
        try:
            return (self.data_dir / "redis.url").read_text(encoding="utf-8").strip()
        except FileNotFoundError as error:
            raise NotRunningError(
                f"no Redis was started in {self.data_dir.absolute()}: start the service with `afa "
                "up`, name the folder of one with --data-dir, or set REDIS_URL"
            ) from error

    def cache_url(self, settings: Settings) -> str:
        """Return the cache's address; the ledger's server unless set otherwise."""
        return settings.cache_url or self.ledger_url(settings)

    def object_store_url(self, settings: Settings) -> str:
        """Return the object store as a URL."""
        return self._as_url(settings.object_store, settings.shared, "objects")

    def journal_store_url(self, settings: Settings) -> str:
        """Return the archive of the journal as a URL."""
        return self._as_url(settings.journal_store, settings.shared, "journal")

    def library_url(self, settings: Settings) -> str:
        """Return the library as a URL."""
        return self._as_url(settings.library, settings.shared, "library")

    def payments_url(self, settings: Settings) -> str:
        """Return the URL where the sandbox payment provider keeps its charges."""
        if settings.shared is None:
            return self.data_dir.absolute().as_uri()
        return below(settings.shared, "payments")

    def published_url(self, settings: Settings) -> str | None:
        """Return the URL where catalog and fingerprints are published."""
        return None if settings.shared is None else below(settings.shared, "tracks")

    def checkpoints_url(self, settings: Settings) -> str | None:
        """Return the URL where checkpoints are published."""
        return None if settings.shared is None else below(settings.shared, "checkpoints")

    @property
    def library_view_dir(self) -> Path:
        """Folder of this machine's view of the library; it may be deleted."""
        return self.data_dir / "library-view"

    def served(self, settings: Settings) -> "LocalFiles":
        """Return the files whose catalog and fingerprints the service reads: fetched or our own."""
        fetched = self.data_dir.absolute() / "published"
        return self if settings.shared is None else LocalFiles(fetched)

    def _as_url(self, place: str | None, shared: str | None, name: str) -> str:
        if place is None and shared is not None:
            return below(shared, name)
        if place is not None and "://" in place:
            return place
        folder = Path(place) if place is not None else self.data_dir / name
        return folder.absolute().as_uri()

    def key_pepper(self, settings: Settings) -> str:
        """Return the secret that keys are hashed with; it is made on first use."""
        if settings.key_pepper is not None:
            return settings.key_pepper.get_secret_value()
        path = self.data_dir / "pepper"
        if not path.exists():
            make_private(self.data_dir)
            write_private(path, secrets.token_hex(32))
        return path.read_text(encoding="utf-8").strip()

    @property
    def folder_id(self) -> dict[str, str | int]:
        """Return what differs in a copy of the data folder; a moved one keeps its inode."""
        folder = self.session_path.resolve().parent  # the session's real folder, if it is a link
        return {"path": str(folder), "inode": folder.stat().st_ino}

    def read_session(self) -> dict[str, Any] | None:
        """Return the session of a running service, if there is one.

        A torn file counts as none, as does that of a folder copied while its service ran.
        """
        try:
            session: dict[str, Any] = json.loads(self.session_path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        own = self.folder_id
        # On some file systems the inode of a folder may change.
        return session if session.get("folder", own).items() & own.items() else None


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may enter, or restrict an existing one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 600, whole or not at all."""
    staged = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    staged.replace(path)
