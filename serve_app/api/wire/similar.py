"""Similar tracks and paths between tracks on the wire."""

import math
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AliasChoices, Field, model_validator

from pipelines.analysis.records import EMBEDDING_DIMENSION
from serve_app.api.wire.bodies import Meta, RequestModel, WireModel
from serve_app.api.wire.forms import PLAIN, AssetId, JobId
from serve_app.api.wire.library import CamelotKey, LibraryTrackBody, Tag, track_body
from serve_app.api.wire.meanings import META
from serve_app.library.query import TrackQuery
from serve_app.services.similar.search import Similar
from serve_app.services.similar.similar import Found
from serve_app.services.similar.wanted import Seed, Wanted

MAX_SEEDS = 20
MAX_SIMILAR = 100
MAX_PATH = 50


def _some_direction(vector: list[float]) -> list[float]:
    if not 0.0 < math.sqrt(sum(value * value for value in vector)) < math.inf:
        raise ValueError("must not be all zeros, nor too large")
    return vector


Vector = Annotated[
    list[Annotated[float, Field(allow_inf_nan=False), PLAIN]],
    Field(min_length=EMBEDDING_DIMENSION, max_length=EMBEDDING_DIMENSION),
    AfterValidator(_some_direction),
]
ModelId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="Model whose vectors are compared; by default that of the first seed's last "
        "analysis.",
    ),
]
Count = Annotated[int, Field(ge=1, le=MAX_SIMILAR, description="How many tracks."), PLAIN]
Tempo = Annotated[float | None, Field(ge=0, le=1000, description="BPM."), PLAIN]
YearBound = Annotated[
    int | None, Field(ge=0, le=9999, description="Year of the release; inclusive."), PLAIN
]
Keys = Annotated[
    list[CamelotKey],
    Field(max_length=24, description="Camelot names; a track needs any one of them."),
]
Tags = Annotated[
    list[Tag],
    Field(
        max_length=16,
        description="Tags of the owner, genres, or tags from the analysis; all must match.",
    ),
]
Octaves = Annotated[
    bool, Field(description="Also accept tempi of which half or double lies in the range.")
]
Compatible = Annotated[
    bool,
    Field(
        description="Only keys that mix with the first seed's: the same, its relative, and a fifth "
        "up and down, as on the Camelot wheel. Replaces `key`."
    ),
]


class Filters(RequestModel):
    """Which tracks may be returned."""

    n: Count = 10
    model: ModelId | None = Field(
        None,
        validation_alias=AliasChoices("model", "embedding_model"),
        description="Model whose vectors are compared; by default that of the first seed's last "
        "analysis. `embedding_model`, its name in analyses, is accepted too.",
    )
    tempo_min: Tempo = None
    tempo_max: Tempo = None
    tempo_octaves: Octaves = False
    year_min: YearBound = Field(None, description="Year of the release; inclusive.")
    year_max: YearBound = Field(None, description="Year of the release; inclusive.")
    key: Keys = Field(default_factory=list)
    compatible: Compatible = False
    tag: Tags = Field(default_factory=list)

    def wanted(
        self,
        seeds: list[Seed],
        unlike: list[Seed] | None = None,
        vector: list[float] | None = None,
    ) -> Wanted:
        """Return what is searched for."""
        query = TrackQuery(
            tempo_min=self.tempo_min,
            tempo_max=self.tempo_max,
            year_min=self.year_min,
            year_max=self.year_max,
            keys=self.key,
            tags=self.tag,
            tempo_octaves=self.tempo_octaves,
        )
        return Wanted(self.n, seeds, unlike or [], vector, self.model, query, self.compatible)


class SeedBody(RequestModel):
    """A track of the library, an asset that was added to it, or the result of a job."""

    id: str | None = Field(
        None,
        min_length=1,
        max_length=2048,
        description="Identifier in any form that look-ups accept.",
        examples=["isrc:QZAFA2600001"],
    )
    asset_id: AssetId | None = Field(None, description="An asset that was added to the library.")
    job_id: JobId | None = Field(
        None,
        description="One of your analyses that was submitted with `include_embedding`; its audio "
        "need not be in the library.",
    )
    weight: Annotated[float, PLAIN] = Field(
        1.0, gt=0, le=100, description="Relative to the other seeds."
    )

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if sum(name is not None for name in (self.id, self.asset_id, self.job_id)) != 1:
            raise ValueError("name one of id, asset_id and job_id")
        return self

    def seed(self) -> Seed:
        """Return the seed in the form that a search takes."""
        return Seed(self.id, self.asset_id, self.job_id, self.weight)


Seeds = Annotated[
    list[SeedBody], Field(max_length=MAX_SEEDS, description="What the tracks should sound like.")
]


class SimilarRequest(Filters):
    """What the tracks should be like, and unlike: seeds, or an embedding with its model."""

    seeds: Seeds = Field(
        default_factory=list,
        description="Tracks that the results should sound like.",
        examples=[[{"id": "isrc:QZAFA2600001"}]],
    )
    unlike: Seeds = Field(
        default_factory=list, description="Tracks to search away from, with half the weight."
    )
    embedding: Vector | None = Field(
        None, description="768 numbers, instead of seeds; `model` names the model that made them."
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.embedding is None and not self.seeds:
            raise ValueError(
                "seeds is missing; send some, or an embedding with the model that made it"
            )
        if self.embedding is not None and self.seeds:
            raise ValueError("send either seeds or embedding, not both")
        if self.embedding is not None and self.model is None:
            raise ValueError("model is missing: an embedding needs the one that made it")
        return self

    def search(self) -> Wanted:
        """Return what is searched for."""
        return self.wanted(
            [one.seed() for one in self.seeds], [one.seed() for one in self.unlike], self.embedding
        )


class SimilarTrack(WireModel):
    """A track, and what it has in common with the one it is compared with."""

    track: LibraryTrackBody = Field(description="The track, as the library knows it.")
    distance: float = Field(ge=0, le=2, description="Cosine distance: 0 sounds the same.")
    shared_tags: list[str] = Field(description="Tags that both have.")
    key_relation: (
        Literal["same", "relative", "fifth up", "fifth down", "diagonal", "parallel", "distant"]
        | None
    ) = Field(description="`relative` shares all notes; null if a key is unknown.")
    tempo_ratio: float | None = Field(
        description="Its tempo divided by the other's; null if one is unknown."
    )


class SimilarList(WireModel):
    """The tracks found; similar ones nearest first, compared with the first seed."""

    model: str = Field(description="Model whose vectors were compared.", examples=["afa-embed-1"])
    items: list[SimilarTrack] = Field(description="The tracks, nearest first.")
    meta: Meta = Field(alias="_meta", description=META)


def similar_body(found: Found, meta: Meta) -> SimilarList:
    """Write an answer."""
    items = [similar_track(one) for one in found.items]
    return SimilarList(model=found.model, items=items, meta=meta)


def similar_track(one: Similar) -> SimilarTrack:
    """Write one track of an answer."""
    return SimilarTrack(
        track=track_body(one.track),
        distance=min(2.0, round(one.distance, 6)),
        shared_tags=one.shared_tags,
        key_relation=one.key_relation,
        tempo_ratio=None if one.tempo_ratio is None else round(one.tempo_ratio, 4),
    )
