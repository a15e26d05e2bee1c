"""Batching and execution of a deployment's networks, as in a Serve file; without torch."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class ExecutionOptions(BaseModel):
    """How networks run on a GPU that supports it; on the CPU always eagerly in float32."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="bfloat16: half precision for networks that it hardly changes. Convolutions of "
        "the others run in TF32.",
    )
    batch_sizes: tuple[int, ...] = Field(
        (),
        description="Compile transformers for these numbers of windows, ascending; empty: none.",
    )
    cuda_graphs: bool = Field(False, description="Record a CUDA graph for each of them.")

    @field_validator("batch_sizes")
    @classmethod
    def _ascend(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if list(sizes) != sorted(set(sizes)) or any(size < 1 for size in sizes):
            raise ValueError("batch_sizes must ascend from at least 1")
        return sizes


class ModelArgs(BaseModel):
    """Batching and execution of one model deployment."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    max_windows: int = Field(0, ge=0, description="Windows per track and model; 0 means all.")
    batch_windows: int = Field(
        0,
        ge=0,
        description="Most windows in one forward; 0: 16, and 2 on the CPU, whose caches hold no "
        "more.",
    )
    batch_mib: int = Field(256, ge=1, description="Most MiB of windows in one forward.")
    queue_mib: int = Field(
        2048, ge=1, description="Most MiB of windows that wait for one model; more are refused."
    )
    execution: ExecutionOptions = ExecutionOptions()
    named_mib: int = Field(
        0, ge=0, description="Weights of further embedding models that requests may name; 0: none."
    )
