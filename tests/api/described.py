"""The application with nothing but its OpenAPI document, made once for all tests of it."""

from functools import cache
from types import SimpleNamespace
from typing import Any, cast

from fastapi import FastAPI

from configs.tables import load_table
from serve_app.api.asgi import create_app
from serve_app.domain.tiers import Tiers


@cache
def described_app() -> FastAPI:
    tiers = Tiers(load_table("tiers"))
    return create_app(cast("Any", SimpleNamespace(public_url="http://afa.test", tiers=tiers)))
