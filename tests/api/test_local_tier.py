"""The tier of the machine's own user: no limits in practice, and only from this machine."""

import httpx
import pytest

from tests.api.application import PUBLIC_URL, Application

pytestmark = pytest.mark.redis


def client_from(api: Application, address: str, key: str) -> httpx.AsyncClient:
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(api.app, client=(address, 5)),
        base_url=PUBLIC_URL,
        headers={"Authorization": f"Bearer {key}"},
    )
    api.clients.append(client)
    return client


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "127.8.9.10"])
async def test_it_works_from_this_machine(
    api: Application, demo_audio: bytes, address: str
) -> None:
    client = client_from(api, address, await api.issue("me", "local"))
    params = {"include_embedding": "true", "wait": 60}
    done = await client.post("/v1/audio-features/upload", content=demo_audio, params=params)
    assert done.json()["status"] == "complete"
    assert len(done.json()["result"]["embedding"]) == 768
    mine = (await client.get("/v1/account")).json()
    assert mine["tier"] == "local"
    assert mine["credits"]["remaining"] > 10**11


@pytest.mark.parametrize("address", ["10.0.0.7", "203.0.113.5", "2001:db8::1", "unknown"])
async def test_it_is_refused_from_elsewhere(api: Application, address: str) -> None:
    client = client_from(api, address, await api.issue("me", "local"))
    answer = await client.get("/v1/account")
    assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
    assert "afa keys create" in answer.json()["message"]
    other = client_from(api, address, api.keys["pro"])
    assert (await other.get("/v1/account")).status_code == 200


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
async def test_it_is_refused_through_a_proxy_of_this_machine(api: Application, name: str) -> None:
    client = client_from(api, "127.0.0.1", await api.issue("me", "local"))
    answer = await client.get("/v1/account", headers={name: "203.0.113.5"})
    assert answer.status_code == 401


async def test_two_thousand_requests_a_minute_are_nothing(api: Application) -> None:
    client = client_from(api, "127.0.0.1", await api.issue("me", "local"))
    statuses = {(await client.get("/v1/account")).status_code for _ in range(2000)}
    assert statuses == {200}


def test_what_is_sold_is_as_specified(api: Application) -> None:
    tiers = api.services.tiers
    grants = {tier.name: (tier.monthly_credits, tier.grace_credits) for tier in tiers}
    assert [tier.name for tier in tiers.every] == [*grants, "local"]
    assert grants == {
        "free": (500, 0),
        "basic": (10_000, 500),
        "pro": (60_000, 2_000),
        "scale": (400_000, 10_000),
    }
