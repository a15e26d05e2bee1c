"""Schemathesis against the running application: every check, valid and invalid data, stateful."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.schemas import OpenApiSchema

from serve_app.composition.options import StoreOptions
from tests.api.described import described_app
from tests.api.live import LiveApplication, serve_application

pytestmark = [
    pytest.mark.redis,
    # Schemathesis draws from `random` inside its own strategies.
    pytest.mark.filterwarnings("ignore:Do not use the `random` module"),
]

QUICK = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
STATEFUL = settings(QUICK, max_examples=12, stateful_step_count=6)
# No parameters and no body: nothing in them can be wrong.
WITHOUT_INPUT = {"GET /healthz", "GET /readyz"}
# The document can say "bytes", not "bytes that hold audio", so valid bodies may be refused.
AUDIO_BODIES = {
    "POST /v1/audio-features/upload",
    "POST /v1/bpm",
    "POST /v1/assets/upload",
    "POST /v1/identify",
    "POST /v1/embed",
    # Nor can it say which embeddings the operator has, or which of them read text.
    "POST /v1/audio-features/url",
    "GET /v1/similar",
    # Nor "either seeds or an embedding".
    "POST /v1/similar",
    # Nor "an asset or a URL", nor which identifiers make sense.
    "POST /v1/library",
    "PATCH /v1/library/{id}",
    # Nor what a document must contain, nor what identifiers in a list look like.
    "POST /acousticbrainz/{mbid}/low-level",
    "GET /acousticbrainz/low-level",
    "GET /acousticbrainz/high-level",
    "GET /acousticbrainz/count",
    # Nor that a minimum may not exceed its maximum.
    "GET /v1/library",
    "GET /v1/similar/{id}",
    # Nor "an id, or title and artist".
    "GET /api/similar_tracks",
}

# A tag may be any text, so a boolean meant to be invalid is a valid tag in a query.
TEXT_QUERIES = {"GET /v1/library"}
TRIES = 30
LONGEST_URL = 65_536
"""Length in bytes from which uvicorn itself answers, in plain text, that a request is invalid."""
REFUSED = ["400", "401", "403", "404", "405", "409", "413", "415", "429", "5XX"]
"""Data drawn to be invalid may also be too long, which is reported before it is read."""

load_all_checks()
NOT_FOR_AUDIO = CHECKS.get_by_names(["positive_data_acceptance"])
NOT_FOR_TEXT = CHECKS.get_by_names(["negative_data_rejection"])
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


def operations() -> list[str]:
    """Every operation of the document, as ``METHOD /path``."""
    return [
        f"{method.upper()} {path}"
        for path, methods in described_app().openapi()["paths"].items()
        for method in methods
    ]


@pytest.fixture(scope="module")
def live(api_stores: StoreOptions, demo_catalog: Path) -> Iterator[LiveApplication]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("serve_app.store.limits.FAILED_AUTH_PER_MINUTE", 10**6)
        with serve_application(api_stores, demo_catalog, rate=10**6, lookup_wait_s=2.0) as live:
            yield live


def read_document(live: LiveApplication, mode: GenerationMode) -> OpenApiSchema:
    config = SchemathesisConfig.from_dict(
        {
            "auth": {"openapi": {"ApiKey": {"bearer": live.key("scale")}}},
            "generation": {"mode": mode.value},
            "checks": {"negative_data_rejection": {"expected-statuses": REFUSED}},
        }
    )
    return schemathesis.openapi.from_url(f"{live.url}/openapi.json", config=config)


@pytest.fixture(scope="module")
def schemas(live: LiveApplication) -> dict[GenerationMode, OpenApiSchema]:
    return {mode: read_document(live, mode) for mode in MODES}


def answer_to(case: Any, **options: Any) -> Any:
    """Send a request, and again when a busy machine answers 503 and says when to retry."""
    for _ in range(TRIES):
        response = case.call(**options)
        if response.status_code != 503 or "Retry-After" not in response.headers:
            break
        time.sleep(float(response.headers["Retry-After"]))
    return response


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("label", operations())
def test_no_request_breaks_the_contract(
    schemas: dict[GenerationMode, OpenApiSchema], label: str, mode: GenerationMode
) -> None:
    if mode is GenerationMode.NEGATIVE and label in WITHOUT_INPUT:
        return
    method, path = label.split(" ")
    operation: Any = schemas[mode][path][method]
    excluded = [
        *(NOT_FOR_AUDIO if label in AUDIO_BODIES else []),
        *(NOT_FOR_TEXT if label in TEXT_QUERIES else []),
    ]

    @QUICK
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        response = answer_to(case)
        assume(len(response.request.url) < LONGEST_URL)
        case.validate_response(response, excluded_checks=excluded)

    check()


def test_no_sequence_breaks_the_contract(
    schemas: dict[GenerationMode, OpenApiSchema],
) -> None:
    machine = schemas[GenerationMode.POSITIVE].as_state_machine()

    class Sequence(machine):  # type: ignore[misc,valid-type]  # made at run time
        def call(self, case: Any, **options: Any) -> Any:
            return answer_to(case, **options)

        def validate_response(self, response: Any, case: Any, **options: Any) -> None:
            case.validate_response(response, excluded_checks=NOT_FOR_AUDIO)

    Sequence.run(settings=STATEFUL)
