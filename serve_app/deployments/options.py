"""What the deployments are built with; made by the application builder, passed on."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from configs.tables import load_table
from models.cards import ModelCard, choose_cards, parse_cards


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


class WorkerOptions(BaseModel):
    """How the analysis workers run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    concurrent_jobs: int = Field(2, ge=1, description="Jobs that one worker replica runs at once.")
