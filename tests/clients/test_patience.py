"""How long the Python client waits when the service asks for a pause."""

import time
from pathlib import Path

import afa_client
import pytest
from afa_client import Client, Retries

from serve_app.composition.options import StoreOptions
from tests.api.live import serve_application

pytestmark = pytest.mark.redis


def test_a_refusal_is_waited_out_as_long_as_the_service_says(
    api_stores: StoreOptions, demo_catalog: Path
) -> None:
    with serve_application(api_stores, demo_catalog, rate=60) as live:
        with (
            Client(live.url, live.key("pro"), retries=Retries(most=0)) as impatient,
            pytest.raises(afa_client.RateLimitedError) as refusal,
        ):
            drain(impatient)
        asked_s = refusal.value.retry_after_s
        assert asked_s is not None
        begun_s = time.monotonic()
        with Client(live.url, live.key("pro")) as patient:
            assert patient.account().tier == "pro"
        assert time.monotonic() - begun_s >= asked_s - 1.0
        hurried = Retries(longest_pause_s=0.5)
        with (
            Client(live.url, live.key("pro"), retries=hurried) as client,
            pytest.raises(afa_client.RateLimitedError),
        ):
            drain(client)


def drain(client: Client) -> None:
    """Send requests until the service limits them."""
    for _ in range(200):
        client.account()
