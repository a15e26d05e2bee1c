"""What callers are told of errors in another process."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.exceptions import RayTaskError

from models.checkpoints.cards import UnreadableTextError
from serve_app.deployments.handles import RayTexts
from serve_app.domain.errors import BadRequestError


async def test_a_text_that_a_model_cannot_read_is_the_callers_fault() -> None:
    async def refuse(text: str, model: str) -> list[float]:
        cause = UnreadableTextError("WordLevel error: Missing [UNK] token from the vocabulary")
        raise RayTaskError("embed_text", "…", cause).as_instanceof_cause()

    handle = SimpleNamespace(embed_text=SimpleNamespace(remote=refuse))
    with pytest.raises(BadRequestError, match="text: the model 'clap-joint' has no tokens"):
        await RayTexts(cast("Any", handle)).embed_text("🎹", "clap-joint")
