"""Which services the settings turn on."""

import pytest

from serve_app.providers.recognisers.calls import MonthlyCap
from serve_app.providers.recognisers.registry import RecogniserSettings, build_sources
from serve_app.providers.web.http_client import LocalRateLimiter
from tests.providers.recognisers.services import sign


class Unsure:
    """Stands in for our own index in the list."""

    name = "local"


def sources(**settings: object) -> list[str]:
    built = build_sources(
        RecogniserSettings("1.0", **settings),  # type: ignore[arg-type]
        LocalRateLimiter(),
        MonthlyCap(1),
        Unsure(),  # type: ignore[arg-type]
    )
    return [one.name for one in built.recognisers]


def test_a_service_is_off_until_it_has_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sources() == ["local"]
    assert sources(acrcloud_key="k") == ["local"]
    names = ("acoustid_key", "audd_token", "acrcloud_key", "acrcloud_secret")
    assert sources(**dict.fromkeys(names, "x")) == ["local", "acoustid", "audd", "acrcloud"]
    monkeypatch.setattr("serve_app.providers.recognisers.registry.installed_signer", lambda: sign)
    assert sources() == ["local"]
    assert sources(shazam_enabled=True) == ["local", "shazam"]
