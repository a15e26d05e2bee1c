"""What the deployments are built with; made by the application builder, passed on."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from afa.cards import usable_cards
from models.checkpoints.cards import ModelCard, choose_cards
from serve_app.composition.files import checkpoint_mirror, tracks_mirror
from serve_app.composition.model_args import ModelArgs
from serve_app.ledger.jobs.records import JobPolicy
from serve_app.ledger.ledger import OverAllowance
from serve_app.library.library import Library
from serve_app.providers.identities.registry import ProviderSettings
from serve_app.providers.installed import PROVIDERS, RECOGNISERS, split_settings
from serve_app.providers.recognisers.registry import RecogniserSettings
from serve_app.providers.web.url_guard import UrlGuard
from serve_app.store.keys import DEFAULT_SHARDS


class ModelOptions(ModelArgs):
    """Which checkpoints a model deployment runs, where, and how it batches."""

    model_dir: Path
    licences: Literal["any", "permissive"] = "any"
    chosen: dict[str, str] = Field({}, description="Role to model id, where not the default.")
    device: str = "auto"
    published: str | None = Field(
        None, description="Where checkpoints are published, as a URL; None: nowhere."
    )

    def follow(self) -> None:
        """Bring the model folder to what is published, now and from now on.

        Raises:
            ServiceUnavailableError: Where they are published is away.
            DamagedPublicationError: What lies there is not what was published.
        """
        if self.published is not None:
            checkpoint_mirror(self.published, self.model_dir).follow_on()

    def cards(self, chosen: Mapping[str, str] | None = None) -> dict[str, tuple[ModelCard, ...]]:
        """Return the cards of each role.

        Args:
            chosen: Role to model id; goes before what the Serve file says.

        Raises:
            CardError: The choice names what is not known, or what the licence policy refuses.
        """
        return choose_cards(
            usable_cards(self.model_dir), self.licences, self.chosen | dict(chosen or {})
        )


class JobOptions(BaseModel):
    """Times and limits of all jobs; see `JobPolicy`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lease_s: float = Field(30.0, gt=0, description="How long a worker may be silent.")
    max_attempts: int = Field(3, ge=1, description="Attempts before a job is given up.")
    queue_limit_s: float = Field(900.0, gt=0, description="Longest wait for a worker.")
    run_limit_s: float = Field(300.0, gt=0, description="Longest attempt.")
    max_wait_s: float = Field(
        120.0, gt=0, description="Expected wait above which no job is taken in."
    )
    owner_in_flight: int = Field(
        64, ge=1, description="Most jobs of one owner that run at the same time."
    )
    owner_fetches: int = Field(
        2, ge=1, description="Most addresses of one owner that are fetched at the same time."
    )

    def policy(self) -> JobPolicy:
        """Return what the store goes by."""
        return JobPolicy(**self.model_dump())


class StoreOptions(BaseModel):
    """How to reach the stores, and what they go by."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ledger_url: str
    cache_url: str
    object_store: str
    key_pepper: str = Field(repr=False)
    ledger_shards: int = DEFAULT_SHARDS
    over_allowance: OverAllowance = "charge"
    topup_replicas: int = 0
    jobs: JobOptions = JobOptions()


class KeeperOptions(BaseModel):
    """Where the keeper of the installation writes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    payments: str = Field(description="Where the sandbox payment provider keeps charges, as a URL.")
    journal_store: str = Field(description="Archive of the journal, as a URL.")


class UrlOptions(BaseModel):
    """What audio may be fetched from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ports: tuple[int, ...] = (80, 443)
    networks: tuple[str, ...] = ()

    def guard(self) -> UrlGuard:
        """Return what checks every address before a connection is made."""
        return UrlGuard(ports=self.ports, networks=self.networks)


class LibraryOptions(BaseModel):
    """Where the tracks this server knows are, and who may add some."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    view_dir: Path
    adding: Literal["accounts", "operator"] = "accounts"

    def open(self) -> Library:
        """Open the library and follow it from now on."""
        library = Library(self.url, self.view_dir)
        library.follow_on()
        return library


class BrowserOptions(BaseModel):
    """What browsers may do with the API."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cors_origins: tuple[str, ...] = ()
    playground: bool = True


class TrackOptions(BaseModel):
    """Who knows tracks, and what a batch of them costs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    catalog_dir: Path
    fingerprint_dir: Path
    published: str | None = Field(
        None, description="Where both are published, as a URL; None: they are this machine's own."
    )
    batch_cached_free: bool = Field(False, description="Do not charge cached slots of a batch.")
    providers: dict[str, bool | str] = Field(
        {}, repr=False, description="Fields of `ProviderSettings`."
    )
    recognisers: dict[str, str | int | bool] = Field(
        {}, repr=False, description="Fields of `RecogniserSettings`."
    )

    def follow(self) -> None:
        """Bring catalog and fingerprints to what is published, now and from now on.

        Raises:
            ServiceUnavailableError: Where they are published is away.
        """
        if self.published is not None:
            tracks_mirror(self.published, self.catalog_dir.parent).follow_on()

    def provider_settings(self) -> ProviderSettings:
        """Return the providers' settings.

        Raises:
            ValueError: One of them is nobody's.
        """
        others, ours = split_settings(PROVIDERS, self.providers)
        refuse_unknown("AFA_PROVIDERS", ours, ProviderSettings)
        return ProviderSettings(version("afa"), others, **ours)  # type: ignore[arg-type]

    def recogniser_settings(self) -> RecogniserSettings:
        """Return the identification services' settings.

        Raises:
            ValueError: One of them is nobody's.
        """
        others, ours = split_settings(RECOGNISERS, self.recognisers)
        refuse_unknown("AFA_RECOGNISERS", ours, RecogniserSettings)
        return RecogniserSettings(version("afa"), others, **ours)  # type: ignore[arg-type]


def refuse_unknown(variable: str, names: Iterable[str], kind: type[Any]) -> None:
    """Refuse settings that are no field of ``kind``.

    Raises:
        ValueError: There is one.
    """
    known = [field.name for field in fields(kind) if field.name not in {"version", "others"}]
    unknown = sorted(set(names).difference(known))
    if unknown:
        raise ValueError(f"{variable} has no setting {unknown[0]!r}, but {', '.join(known)}")


class WorkerOptions(BaseModel):
    """How the analysis workers run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    concurrent_jobs: int = Field(2, ge=1, description="Jobs that one worker replica runs at once.")
    concurrent_fetches: int = Field(
        32,
        ge=1,
        description="Addresses that one worker replica fetches at once, in addition to its jobs.",
    )
    analysis: Literal["whole", "partial"] = Field(
        "whole",
        description="partial: mood and embedding analyse 3 x 10 s of a track, not all of it.",
    )
