"""Embeddings of many files, and the models that make them, on the wire."""

import pyarrow as pa
from pydantic import Field, model_validator

from pipelines.analysis.records import EMBEDDING_DIMENSION
from serve_app.api.wire.bodies import Error, RequestModel, WireModel
from serve_app.api.wire.forms import AssetId
from serve_app.checkpoints.named import KnownModel
from serve_app.domain.errors import AfaError
from serve_app.services.embedding import FileVector

MAX_FILES = 32

ARROW = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("embedding", pa.list_(pa.float32(), EMBEDDING_DIMENSION)),
        pa.field("embedding_model", pa.string()),
        pa.field("duration_s", pa.float64()),
        pa.field("error", pa.string()),
        pa.field("message", pa.string()),
    ]
)


class NamedFile(RequestModel):
    """Audio stored elsewhere: an asset, or a public address."""

    asset_id: AssetId | None = Field(
        None,
        description="As returned by `POST /v1/assets/upload`.",
        examples=["afa_01jb3q8k6ya7rj1v6fwb2q4m9d"],
    )
    url: str | None = Field(
        None,
        min_length=1,
        max_length=4096,
        description="Public HTTP(S) address that returns audio bytes directly.",
        examples=["https://example.org/track.mp3"],
    )

    @model_validator(mode="after")
    def _one_name(self) -> "NamedFile":
        if (self.asset_id is None) == (self.url is None):
            raise ValueError("name either asset_id or url")
        return self


class FilesInput(RequestModel):
    """The files to embed."""

    files: list[NamedFile] = Field(
        min_length=1, max_length=MAX_FILES, description="Assets and addresses, in any order."
    )


class EmbeddedFile(WireModel):
    """One line of the answer: the vector of a file, or why there is none."""

    name: str = Field(
        description="The file's name in the form, its `asset_id` or its `url`; empty for raw bytes."
    )
    embedding: list[float] | None = Field(
        None, description="768 numbers of norm 1, zeros for silence; null if it failed."
    )
    embedding_model: str | None = Field(
        None, description="Model that made it; compare only vectors of the same model."
    )
    duration_s: float | None = Field(None, description="Length of the audio in seconds.")
    error: Error | None = Field(
        None, description="Why there is no vector; the file was not charged."
    )


class ModelBody(WireModel):
    """A checkpoint that this service knows."""

    id: str = Field(description="Its name in requests and results.", examples=["afa-embed-1"])
    role: str = Field(description="`embedding`, `tags`, `attributes`, `key`, `chords` or `beats`.")
    in_use: bool = Field(description="Whether it is used if a request names no other.")
    may_be_named: bool = Field(
        description="Whether `embedding_model` may name it: it is an embedding, on this machine, "
        "and not too large."
    )
    reads_text: bool = Field(
        description="Whether `GET /v1/similar?text=` compares words with its vectors."
    )
    dimension: int | None = Field(
        description="Size of its embedding before padding to 768; null if it makes none."
    )
    licence: str = Field(description="SPDX id of the licence of its weights.")
    commercial_use: bool = Field(description="Whether a paid service may use it.")
    attribution: str = Field(description="Who to credit.")
    trained_on: str | None = Field(description="What it was trained on; null if unknown.")
    notes: str = Field(description="Known limitations.")


class ModelList(WireModel):
    """All checkpoints that this service knows."""

    items: list[ModelBody] = Field(description="All checkpoints.")


def embedded_file(file: FileVector) -> EmbeddedFile:
    """Write the result for a file."""
    found = file.found
    if isinstance(found, AfaError):
        return EmbeddedFile(name=file.name, error=Error(error=found.code, message=found.message))
    return EmbeddedFile(
        name=file.name,
        embedding=found.vector,
        embedding_model=found.model,
        duration_s=round(found.duration_s, 3),
    )


def as_lines(files: list[EmbeddedFile]) -> bytes:
    """Write one JSON object per line."""
    return "".join(f"{file.model_dump_json()}\n" for file in files).encode()


def as_arrow(files: list[EmbeddedFile]) -> bytes:
    """Write an Arrow IPC stream of one record batch, with the columns of `ARROW`."""
    rows = [
        file.model_dump()
        | {
            "error": file.error and file.error.error,
            "message": file.error and file.error.message,
        }
        for file in files
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ARROW) as writer:
        writer.write_table(pa.Table.from_pylist(rows, ARROW))
    written: bytes = sink.getvalue().to_pybytes()
    return written


def model_body(known: KnownModel) -> ModelBody:
    """Write what is known about a checkpoint."""
    card = known.card
    return ModelBody(
        id=card.model_id,
        role=card.role,
        in_use=known.in_use,
        may_be_named=known.may_be_named,
        reads_text=card.reads_text,
        dimension=card.outputs.get("embedding"),
        licence=card.licence,
        commercial_use=card.commercial_use,
        attribution=card.attribution,
        trained_on=card.trained_on or None,
        notes=card.notes,
    )
