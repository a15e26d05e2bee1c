"""What the deployments are built with; made by the application builder, passed on."""

from importlib.metadata import version
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from configs.tables import load_table
from models.cards import ModelCard, choose_cards, parse_cards
from serve_app.providers.recognisers import RecogniserSettings
from serve_app.providers.registry import ProviderSettings


class ModelOptions(BaseModel):
    """Which checkpoints a model deployment runs, where, and how it batches."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model_dir: Path
    licences: Literal["any", "permissive"] = "any"
    chosen: dict[str, str] = Field({}, description="Role to model id, where not the default.")
    device: str = "auto"
    max_windows: int = Field(0, ge=0, description="Windows per track and model; 0 means all.")
    batch_windows: int = Field(16, ge=1, description="Budget of one batch.")
    queue_windows: int = Field(4096, ge=1, description="More waiting windows are refused.")

    def cards(self) -> dict[str, tuple[ModelCard, ...]]:
        """Give the cards of each role."""
        return choose_cards(parse_cards(load_table("models")), self.licences, self.chosen)


class StoreOptions(BaseModel):
    """How to reach the stores."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ledger_url: str
    cache_url: str
    object_store: str
    key_pepper: str = Field(repr=False)


class UrlOptions(BaseModel):
    """What audio may be fetched from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ports: tuple[int, ...] = (80, 443)
    networks: tuple[str, ...] = ()


class TrackOptions(BaseModel):
    """Who knows tracks, and what a batch of them costs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    catalog_dir: Path
    fingerprint_dir: Path
    batch_cached_free: bool = Field(False, description="Do not charge cached slots of a batch.")
    providers: dict[str, bool | str] = Field(
        {}, repr=False, description="Fields of `ProviderSettings`."
    )
    recognisers: dict[str, str | int | bool] = Field(
        {}, repr=False, description="Fields of `RecogniserSettings`."
    )

    def provider_settings(self) -> ProviderSettings:
        """Give the providers' settings."""
        return ProviderSettings(version=version("afa"), **self.providers)  # type: ignore[arg-type]

    def recogniser_settings(self) -> RecogniserSettings:
        """Give the identification services' settings."""
        return RecogniserSettings(
            version=version("afa"),
            **self.recognisers,  # type: ignore[arg-type]
        )


class WorkerOptions(BaseModel):
    """How the analysis workers run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    concurrent_jobs: int = Field(2, ge=1, description="Jobs that one worker replica runs at once.")
