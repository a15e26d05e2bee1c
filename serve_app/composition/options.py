"""Options that the deployments are built with; the application builder makes them."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from afa.cards import usable_cards
from configs.settings import Settings
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
        """Keep the model folder at what is published, from now on.

        Raises:
            ServiceUnavailableError: The store of published checkpoints is unavailable.
            DamagedPublicationError: What the store has is not what was published.
        """
        if self.published is not None:
            checkpoint_mirror(self.published, self.model_dir).follow_on()

    def cards(self, chosen: Mapping[str, str] | None = None) -> dict[str, tuple[ModelCard, ...]]:
        """Return the cards of each role.

        Args:
            chosen: Role to model id; overrides the Serve file.

        Raises:
            CardError: The choice names a model that is unknown or refused by the licence policy.
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
        """Return the policy that the store uses."""
        return JobPolicy(**self.model_dump())


class StoreOptions(BaseModel):
    """How to reach the stores, and the rules that they apply."""

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
    """Addresses that audio may be fetched from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ports: tuple[int, ...] = (80, 443)
    networks: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> "UrlOptions":
        """Return what the environment allows."""
        return cls(ports=settings.url_ports, networks=settings.url_networks)

    def guard(self) -> UrlGuard:
        """Return the guard that checks every address before a connection is made."""
        return UrlGuard(ports=self.ports, networks=self.networks)


class LibraryOptions(BaseModel):
    """Where the server's track library is, and who may add tracks."""

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
    """Services that know tracks, and what a batch of look-ups costs."""

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
        """Keep catalog and fingerprints at what is published, from now on.

        Raises:
            ServiceUnavailableError: The store where they are published is unavailable.
        """
        if self.published is not None:
            tracks_mirror(self.published, self.catalog_dir.parent).follow_on()

    def provider_settings(self) -> ProviderSettings:
        """Return the providers' settings.

        Raises:
            ValueError: A setting belongs to no provider.
        """
        others, ours = split_settings(PROVIDERS, self.providers)
        refuse_unknown("AFA_PROVIDERS", ours, ProviderSettings)
        return ProviderSettings(version("afa"), others, **ours)  # type: ignore[arg-type]

    def recogniser_settings(self) -> RecogniserSettings:
        """Return the identification services' settings.

        Raises:
            ValueError: A setting belongs to no service.
        """
        others, ours = split_settings(RECOGNISERS, self.recognisers)
        refuse_unknown("AFA_RECOGNISERS", ours, RecogniserSettings)
        return RecogniserSettings(version("afa"), others, **ours)  # type: ignore[arg-type]


def refuse_unknown(variable: str, names: Iterable[str], kind: type[Any]) -> None:
    """Refuse settings that are not fields of ``kind``.

    Raises:
        ValueError: There is such a setting.
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
