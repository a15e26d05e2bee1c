"""What all bodies share: their base, the error body, and how a request was served."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticUseDefault

Percent = Annotated[int, Field(ge=0, le=100)]
Unit = Annotated[float, Field(ge=0.0, le=1.0)]
KeyName = Literal["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"]


class WireModel(BaseModel):
    """Base of all bodies: serialised by alias, unknown input fields ignored."""

    model_config = ConfigDict(populate_by_name=True)


class RequestModel(WireModel):
    """Base of request bodies: null for an optional field counts as leaving it out."""

    @field_validator("*", mode="before")
    @classmethod
    def _null_is_nothing(cls, value: Any, info: ValidationInfo) -> Any:
        if value is None and not cls.model_fields[info.field_name or ""].is_required():
            raise PydanticUseDefault
        return value

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        described = handler(core_schema)
        schema = handler.resolve_ref_schema(described)
        for name, field in schema["properties"].items():
            if name in schema.get("required", []) or {"type": "null"} in field.get("anyOf", []):
                continue
            kind = {key: field.pop(key) for key in field.keys() - OF_A_FIELD}
            field["anyOf"] = [kind, {"type": "null"}]
        return described


OF_A_FIELD = {"title", "description", "default", "examples"}
"""Keys of a schema that are about a field, not about its values."""


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
        description="Whether the response came from the cache."
    )
    latency_ms: int = Field(ge=0, description="Processing time in milliseconds.")
    credits_used: int = Field(ge=0, description="Credits that this operation cost.")
    credits_remaining: int = Field(description="Credits left; negative within the grace buffer.")
    trace_id: str = Field(description="W3C trace id of the request.")
    test: bool = Field(
        False,
        exclude_if=lambda is_test: not is_test,
        description="Present, and true, only if a test key asked: the answer is then made up from "
        "the request alone, and nothing was computed.",
    )


HealthStatus = Literal["ok", "degraded", "unavailable"]


class Health(WireModel):
    """State of the service."""

    status: HealthStatus = Field(
        description="`ok` if every part is; `degraded` if a part is unavailable but requests are "
        "accepted; `unavailable` if no requests should be sent here."
    )
    checks: dict[str, str] = Field(description="For each part, `ok` or what is wrong with it.")
    degraded: list[str] = Field(description="The parts that are unavailable.")
