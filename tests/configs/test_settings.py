"""Settings are read once, from the environment, and each is described in the book."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from configs.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "operating" / "README.md").read_text()


def test_the_environment_names_the_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://general")
    assert Settings().redis_url == "redis://general"
    monkeypatch.setenv("AFA_REDIS_URL", "redis://ours")
    monkeypatch.setenv("AFA_URL_PORTS", "[80, 8080]")
    settings = Settings()
    assert settings.redis_url == "redis://ours"
    assert settings.url_ports == (80, 8080)


def test_settings_do_not_change_and_secrets_do_not_print(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFA_KEY_PEPPER", "hush, this is a secret")
    settings = Settings()
    assert "hush" not in repr(settings)
    with pytest.raises(ValidationError):
        settings.device = "cpu"


@pytest.mark.parametrize("pepper", ["", " " * 32, "hush", "fifteen letters"])
def test_a_pepper_that_is_no_secret_is_refused_and_not_shown(
    pepper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_KEY_PEPPER", pepper)
    with pytest.raises(ValidationError, match="too short to be a secret; `openssl rand") as refused:
        Settings()
    assert not pepper.strip() or pepper not in str(refused.value)


def test_payments_do_not_wait_for_replicas_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFA_TOPUP_REPLICAS", "1")
    monkeypatch.setenv("AFA_REDIS_URL", "redis://127.0.0.1:6379")
    assert Settings().topup_replicas == 1
    monkeypatch.setenv("AFA_REDIS_URL", "Redis+Cluster://127.0.0.1:6379")
    with pytest.raises(ValidationError, match="min-replicas-to-write"):
        Settings()


def test_trusted_proxies_are_addresses_or_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().trusted_proxies == ()
    monkeypatch.setenv("AFA_TRUSTED_PROXIES", '["127.0.0.1", "10.1.2.3/8", "fd00::/8"]')
    assert Settings().trusted_proxies == ("127.0.0.1/32", "10.0.0.0/8", "fd00::/8")
    monkeypatch.setenv("AFA_TRUSTED_PROXIES", '["my-proxy"]')
    with pytest.raises(ValidationError):
        Settings()


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("URL_NETWORKS", ['["10.1.2.3/8", "fd00::/8"]', "[]"], ['["foo"]', '["10.0.0.0/99"]']),
        ("DEVICE", ["auto", "cpu", "cuda", "cuda:3"], ["gpu", "cuda:", "cuda:x", ""]),
    ],
)
def test_networks_and_devices_are_checked(
    monkeypatch: pytest.MonkeyPatch, name: str, good: list[str], bad: list[str]
) -> None:
    for written in good:
        monkeypatch.setenv(f"AFA_{name}", written)
        Settings()
    for written in bad:
        monkeypatch.setenv(f"AFA_{name}", written)
        with pytest.raises(ValidationError, match=r"must be auto|IPv4 or IPv6 network"):
            Settings()


@pytest.mark.parametrize("name", ["SHARED", "OBJECT_STORE", "LIBRARY", "JOURNAL_STORE"])
def test_a_place_is_a_folder_or_the_url_of_a_store(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folders = ("music", "/my music", "file:///mnt/afa", "file://localhost/mnt/afa")
    for good in (*folders, "s3://b/p?endpoint=http://minio:9000", "S3://b"):
        monkeypatch.setenv(f"AFA_{name}", good)
        Settings()
    for bad in ("gs://bucket/prefix", "s3://", "file://music", "http://host/music"):
        monkeypatch.setenv(f"AFA_{name}", bad)
        with pytest.raises(ValidationError, match="must be a folder, file:///… or s3://bucket"):
            Settings()


@pytest.mark.parametrize(
    "name", ["DATA_DIR", "MODEL_DIR", "MODEL_MIRROR", "SHARED", "OBJECT_STORE", "LIBRARY"]
)
def test_an_empty_place_is_not_the_folder_of_the_moment(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(f"AFA_{name}", "")
    with pytest.raises(ValidationError, match="empty; name a place"):
        Settings()


@pytest.mark.parametrize("written", ["8080", "127.0.0.1:", "127.0.0.1:70000", "::1"])
def test_the_address_of_the_metrics_has_a_host_and_a_port(
    monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setenv("AFA_METRICS_ADDRESS", "127.0.0.1:8080")
    assert Settings().metrics_address == "127.0.0.1:8080"
    monkeypatch.setenv("AFA_METRICS_ADDRESS", written)
    with pytest.raises(ValidationError, match="host:port, such as"):
        Settings()


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_stands_in_the_book(name: str) -> None:
    assert f"AFA_{name.upper()}" in PAGE
    assert Settings.model_fields[name].description


def test_a_public_address_has_a_scheme_and_no_slash_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AFA_PUBLIC_URL", "https://afa.example/music/")
    assert Settings().public_url == "https://afa.example/music"
    for wrong in ("afa.example", "ftp://afa.example", "https://", "https://afa.example?a=1"):
        monkeypatch.setenv("AFA_PUBLIC_URL", wrong)
        with pytest.raises(ValidationError, match=r"must be an address, such as https://"):
            Settings()
