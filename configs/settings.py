"""Everything the environment may set, read once into a frozen model.

Tables (tiers, prices, models) and Serve's replicas, GPUs and batches are YAML files in this folder.
"""

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, SecretStr, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

LEAST_PEPPER = 16
"""Characters of a pepper; nobody with a copy of the ledger must be able to guess it."""


PLACE = re.compile(r"(?!.*://).+|(?i:file://(localhost)?/|s3://[^/?]).*", re.DOTALL)
PLACES = ("shared", "object_store", "library", "journal_store")


class Settings(BaseSettings):
    """Settings of one installation; each is an environment variable ``AFA_<NAME>``."""

    model_config = SettingsConfigDict(
        env_prefix="AFA_", frozen=True, extra="forbid", hide_input_in_errors=True
    )

    data_dir: Path = Field(
        Path(".afa"), description="Where the embedded Redis, uploads and logs live."
    )
    redis_url: str | None = Field(
        None,
        validation_alias=AliasChoices("AFA_REDIS_URL", "REDIS_URL"),
        description="The ledger Redis: credits, jobs, keys. Unset: one is started.",
    )
    cache_url: str | None = Field(
        None,
        description="The cache Redis: features, rate limits. Unset: `afa up` starts one, a cluster "
        "takes the ledger's server.",
    )
    shared: str | None = Field(
        None,
        description="Storage that every node of a cluster sees: s3://bucket/prefix or file:///… of "
        "a shared file system. Audio, journal, library, payments and what `afa catalog publish` "
        "publishes lie below it, unless they have a setting of their own. Unset: data_dir.",
    )
    object_store: str | None = Field(
        None, description="Where uploaded audio is kept: a folder, file://… or s3://bucket/prefix."
    )
    library: str | None = Field(
        None,
        description="Where the library is: a folder, file://… or s3://bucket/prefix for a cluster. "
        "Unset: data_dir/library.",
    )
    library_adding: Literal["accounts", "operator"] = Field(
        "accounts",
        description="Who may add tracks: every account to its own, or the operator alone.",
    )
    ledger_shards: int = Field(
        256,
        ge=1,
        le=999,
        description="Shards of the ledger, fixed for the life of its data: at least one per master "
        "of a Redis Cluster.",
    )
    journal_store: str | None = Field(
        None,
        description="Where the journal is exported to: a folder, file://… or s3://bucket/prefix. "
        "Unset: data_dir/journal.",
    )
    over_allowance: Literal["charge", "reject"] = Field(
        "charge", description="What a cache hit beyond the monthly allowance does."
    )
    topup_replicas: int = Field(
        0, ge=0, description="Replicas that must have a payment before it is acknowledged."
    )
    key_pepper: SecretStr | None = Field(
        None,
        description="Secret that API keys are hashed with, the same on every node of a cluster. "
        "Unset, on one machine: made once, kept in data_dir.",
    )
    public_url: str = Field(
        "http://127.0.0.1:8000", description="Address under which customers reach the service."
    )
    model_dir: Path = Field(
        Path("~/.cache/afa/models"), description="Where pulled checkpoints are kept."
    )
    model_mirror: Path | None = Field(
        None, description="Folder that is looked in before a checkpoint is fetched."
    )
    model_licences: Literal["any", "permissive"] = Field(
        "any", description="permissive: refuse copyleft and non-commercial checkpoints."
    )
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N.")
    url_ports: tuple[int, ...] = Field(
        (80, 443), description="Ports that audio may be fetched from by URL."
    )
    url_networks: tuple[str, ...] = Field(
        (), description="Private networks (CIDR) that audio may nevertheless be fetched from."
    )
    trusted_proxies: tuple[str, ...] = Field(
        (),
        description="Addresses and networks (CIDR) whose X-Forwarded-For tells who asks; nobody's "
        "by default.",
    )
    cors_origins: tuple[str, ...] = Field(
        (),
        description="Origins of web pages that may call the API from a browser, as JSON; `*` is "
        "all. None by default.",
    )
    metrics_address: str | None = Field(
        None,
        description="Where `afa up` shows the metrics to Prometheus, as host:port. Unset: on a "
        "free port of 127.0.0.1, which `afa status` tells.",
    )
    playground: bool = Field(True, description="off: no page at the service's address.")
    batch_cached_free: bool = Field(
        False, description="true: cached slots of a batch cost nothing (the default charges them)."
    )
    providers: dict[str, bool | str] = Field(
        {}, description="Identity providers, as JSON; fields of ProviderSettings."
    )
    recognisers: dict[str, str | int | bool] = Field(
        {}, description="Identification services, as JSON; fields of RecogniserSettings."
    )

    @field_validator("topup_replicas")
    @classmethod
    def _of_one_server(cls, n_replicas: int, info: ValidationInfo) -> int:
        if n_replicas and (info.data.get("redis_url") or "").lower().startswith("redis+cluster:"):
            raise PydanticCustomError(
                "replicas",
                "nothing waits for replicas of a Redis Cluster: leave this out, and set "
                "min-replicas-to-write on its nodes",
            )
        return n_replicas

    @field_validator("key_pepper")
    @classmethod
    def _secret(cls, pepper: SecretStr | None) -> SecretStr | None:
        if pepper is not None and len(pepper.get_secret_value().strip()) < LEAST_PEPPER:
            raise PydanticCustomError(
                "pepper",
                "empty or too short to be a secret; `openssl rand -hex 32` makes one, the same for "
                "every node",
            )
        return pepper

    @field_validator("data_dir", "model_dir", "model_mirror", *PLACES, mode="before")
    @classmethod
    def _named(cls, written: str | Path | None) -> str | Path | None:
        if written == "":  # as a path this is the folder that a command happens to run in
            raise PydanticCustomError("place", "empty; name a place, or leave the setting out")
        return written

    @field_validator(*PLACES)
    @classmethod
    def _known_place(cls, written: str | None) -> str | None:
        if written is not None and PLACE.fullmatch(written) is None:
            raise PydanticCustomError("place", "must be a folder, file:///… or s3://bucket/prefix")
        return written

    @field_validator("device")
    @classmethod
    def _known_device(cls, written: str) -> str:
        if re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", written) is None:
            raise ValueError("must be auto, cpu, cuda or cuda:N")
        return written

    @field_validator("trusted_proxies", "url_networks")
    @classmethod
    def _networks(cls, written: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(ip_network(one, strict=False)) for one in written)

    @field_validator("metrics_address")
    @classmethod
    def _host_and_port(cls, written: str | None) -> str | None:
        if written is not None:
            parts = re.fullmatch(r"[^:\s]+:([0-9]{1,5})", written)
            if parts is None or not 0 < int(parts[1]) < 2**16:
                raise ValueError("must be host:port, such as 127.0.0.1:8080")
        return written

    @field_validator("public_url")
    @classmethod
    def _address(cls, written: str) -> str:
        if re.fullmatch(r"https?://[^/?#\s]+[^?#\s]*", written) is None:
            raise ValueError("must be an address, such as https://afa.example")
        return written.rstrip("/")  # paths are put behind it

    def resolved_model_dir(self) -> Path:
        """Return the model folder with ``~`` expanded."""
        return self.model_dir.expanduser()
