"""What all bodies share: their base, the error body, and how a request was served."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Percent = Annotated[int, Field(ge=0, le=100)]
Unit = Annotated[float, Field(ge=0.0, le=1.0)]
KeyName = Literal["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"]


class WireModel(BaseModel):
    """Base of all bodies: serialised by alias, unknown input fields ignored."""

    model_config = ConfigDict(populate_by_name=True)


class Error(WireModel):
    """Every failed request answers with this body."""

    error: str = Field(
        description="Machine-readable error code.", examples=["insufficient_credits"]
    )
    message: str = Field(description="What happened and what to do about it.")
    trace_id: str | None = Field(None, description="Quote it when you ask for help.")


class Meta(WireModel):
    """How the request was served."""

    cache: Literal["hit", "miss", "bypass"] = Field(
        description="Whether the response came from cache."
    )
    latency_ms: int = Field(ge=0, description="Processing time in milliseconds.")
    credits_used: int = Field(ge=0, description="Credits that this operation cost.")
    credits_remaining: int = Field(description="Credits left; negative inside the grace buffer.")
    trace_id: str = Field(description="W3C trace id of the request.")
    test: bool = Field(
        False,
        exclude_if=lambda is_test: not is_test,
        description="True, and only there, when a test key asked: the answer is made up from the "
        "request alone, and nothing was computed.",
    )


HealthStatus = Literal["ok", "degraded", "unavailable"]


class Health(WireModel):
    """State of the service."""

    status: HealthStatus = Field(
        description="`ok` when every part is, `degraded` when requests are taken although a part "
        "is away, `unavailable` when none should be sent here."
    )
    checks: dict[str, str] = Field(description="Part to `ok` or what is wrong with it.")
    degraded: list[str] = Field(description="The parts that are away.")
