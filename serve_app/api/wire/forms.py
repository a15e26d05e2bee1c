"""Text of a certain form: a pattern for programs, and words for a caller who sends another."""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True, slots=True)
class Form:
    """A pattern that text must match, with words for the error.

    Attributes:
        pattern: A pattern as in JSON Schema, which searches in the text.
        words: What the text should be.
    """

    pattern: str
    words: str

    def check(self, text: str) -> str:
        """Return the text unchanged.

        Raises:
            ValueError: It does not match.
        """
        # In Python `$` also matches before a final line break.
        if re.search(re.sub(r"\$\Z", r"\\Z", self.pattern), text) is None:
            raise ValueError(self.words)
        return text

    def __get_pydantic_core_schema__(
        self, source: type[str], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "pattern": self.pattern}


AssetId = Annotated[
    str, Field(max_length=64), Form("^afa_", "should begin with afa_, as ids of assets do")
]
JobId = Annotated[
    str, Field(max_length=64), Form("^job_", "should begin with job_, as ids of jobs do")
]


def _plain(number: object) -> object:
    if isinstance(number, str) and "_" in number:
        raise ValueError("should be a valid number")
    return number


PLAIN = BeforeValidator(_plain)
"""Validator after a number's bounds: Pydantic reads 1_0 as ten, like Python but few others."""
A_CURSOR = "should be the `next_cursor` of the page before"
