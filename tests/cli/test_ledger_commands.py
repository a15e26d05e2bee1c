"""Operator commands on the ledger: automatic top-up, reconciliation, and a wrong shard count."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from redis import Redis
from typer.testing import CliRunner, Result

from serve_app.checkpoints.choices import CHOICE
from serve_app.cli.environment import console
from serve_app.cli.main import app
from serve_app.ledger.archive.export import Exporter
from serve_app.ledger.archive.segments import Archive
from serve_app.local import embedded_redis
from serve_app.local.backup.contents import contents_of
from serve_app.local.backup.manifest import BackupError
from serve_app.store.client import connect
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.redis


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="afa-") as folder:
        server = embedded_redis.start(Path(folder), extra=("--appendonly", "no"))
        monkeypatch.setenv("AFA_REDIS_URL", server.url)
        monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path))
        monkeypatch.setenv("AFA_LEDGER_SHARDS", "4")
        yield server.url
        server.stop()


def afa(*words: str) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "_width", 200)
        return CliRunner().invoke(app, words, env={"COLUMNS": "200"})


def test_automatic_topup_is_set_shown_and_switched_off(url: str) -> None:
    assert afa("keys", "create", "bob").exit_code == 0
    assert "never set up" in afa("credits", "autotopup", "show", "bob").output
    terms = ["--threshold", "20", "--pack", "100", "--price", "500", "--cap", "1200"]
    done = afa("credits", "autotopup", "set", "bob", *terms)
    assert done.exit_code == 0, done.output
    shown = afa("credits", "show", "bob").output
    for text in ("on", "20 credits", "100 credits for 500", "0 of at most 1200"):
        assert text in shown
    assert "switched off by an operator" in afa("credits", "autotopup", "off", "bob").output


def test_a_tier_that_is_not_there_is_told_with_those_that_are(url: str) -> None:
    refused = afa("keys", "create", "bob", "--tier", "gold")
    assert refused.exit_code == 1
    assert "there is no tier 'gold', but free, basic, pro, scale" in refused.stderr


def test_the_local_tier_is_given_to_nobody_else(url: str) -> None:
    refused = afa("keys", "create", "bob", "--tier", "local")
    assert (refused.exit_code, "`afa keys local` prints it" in refused.stderr) == (1, True)
    assert "there is no owner bob" in afa("keys", "list", "bob").stderr


def test_another_key_leaves_its_owners_tier(url: str) -> None:
    assert afa("keys", "create", "bob", "--tier", "pro").exit_code == 0
    assert afa("keys", "create", "bob", "--scope", "read", "--scope", "assets").exit_code == 0
    assert "60000 of 60000" in afa("credits", "show", "bob").output
    listed = afa("keys", "list", "bob").output
    assert "assets compute read" in listed
    assert "assets read " in listed
    assert afa("keys", "create", "amy").exit_code == 0
    assert "500 of 500" in afa("credits", "show", "amy").output


def test_without_an_owner_all_are_shown(url: str) -> None:
    for owner, tier in (("bob", "pro"), ("amy.b@c", "free")):
        assert afa("keys", "create", owner, "--tier", tier).exit_code == 0
    listed = [
        line.split()[:2] for line in afa("keys", "list").output.splitlines() if "key_" in line
    ]
    assert [owner for owner, *_ in listed] == ["amy.b@c", "bob"]
    rows = [line.split() for line in afa("credits", "show").output.splitlines()]
    assert ["amy.b@c", "free", "500", "500", "0", "0", "0"] in rows
    assert ["bob", "pro", "60000", "60000", "0", "0", "0"] in rows


def test_a_table_in_a_pipe_is_whole(url: str) -> None:
    owner = "an.owner.with.a.name.as.long.as.may.be@some.host.of.example.org"
    key_id = afa("keys", "create", owner).output.split()[-1]
    piped = subprocess.run(
        [sys.executable, "-c", "from serve_app.cli.main import main; main()", "keys", "list"],
        cwd=REPOSITORY,
        env=os.environ | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    (row,) = [line.split() for line in piped.stdout.splitlines() if owner in line]
    assert (row[:2], row[-1]) == ([owner, key_id], "valid")


def test_keys_are_rotated_and_revoked_by_their_ids(url: str) -> None:
    key_id = afa("keys", "create", "bob").output.split()[-1]
    rotated = afa("keys", "rotate", key_id, "--overlap-h", "1")
    assert rotated.exit_code == 0, rotated.output
    revoked = afa("keys", "revoke", rotated.output.split()[-1])
    assert (revoked.exit_code, revoked.output.strip()) == (0, "revoked")
    listed = afa("keys", "list", "bob").output
    assert listed.count("revoked") == 1
    assert listed.count("never") == 1
    assert len(re.findall(r"\b\d{4}-\d\d-\d\d \d\d:\d\dZ", listed)) == 3  # in UTC
    refused = afa("keys", "rotate", rotated.output.split()[-1])
    assert (refused.exit_code, "is revoked or expired" in refused.stderr) == (1, True)
    for command in ("rotate", "revoke"):
        unknown = afa("keys", command, "key_x")
        assert (unknown.exit_code, unknown.stderr.strip()) == (1, "afa: there is no key key_x")


def test_lost_entries_are_told_and_brought_back(url: str, tmp_path: Path) -> None:
    kept = Archive((tmp_path / "journal").as_uri())

    async def export() -> int:
        store = connect(url, shards=4, timeout_s=30)
        try:
            return await Exporter(store, kept).export()
        finally:
            await store.close()

    async def count() -> None:
        store = connect(url, shards=4, timeout_s=30)
        try:
            await contents_of(store)
        finally:
            await store.close()

    assert afa("keys", "create", "bob", "--tier", "free").exit_code == 0
    assert asyncio.run(export()) == 1
    with Redis.from_url(url) as redis:
        copy = {key: redis.dump(key) for key in redis.scan_iter()}
    assert afa("credits", "topup", "bob", "7", "--id", "pay:1").exit_code == 0
    assert asyncio.run(export()) == 2
    assert "everything" in afa("ledger", "reconcile").output
    with Redis.from_url(url) as redis:
        redis.flushall()
        for key, dump in copy.items():
            redis.restore(key, 0, dump)
    trial = afa("ledger", "reconcile", "--trial").output
    assert "bob" in trial
    assert "missing" in trial
    assert "exact" in afa("ledger", "reconcile").output
    assert "everything" in afa("ledger", "reconcile").output
    assert "507" in afa("credits", "show", "bob").output
    assert afa("credits", "audit").exit_code == 0
    assert asyncio.run(export()) == 2
    # The archive alone rebuilds the ledger, but only in an empty Redis.
    place = str(tmp_path / "journal")
    assert "its sums are its states" in afa("ledger", "verify", place).output
    refused = afa("ledger", "restore", place)
    assert (refused.exit_code, "not empty" in refused.stderr) == (1, True)
    with Redis.from_url(url) as redis:
        redis.flushall()
    assert "run `afa ledger restore`" in afa("ledger", "reconcile").stderr
    with Redis.from_url(url) as redis:
        redis.set("cr:format", "half-restored")
    for words in (("ledger", "reconcile"), ("ledger", "restore", place), ("credits", "show")):
        refused = afa(*words)
        assert (refused.exit_code, "restored in part: empty its Redis" in refused.stderr) == (
            1,
            True,
        )
    with pytest.raises(BackupError, match="restored in part: empty its Redis"):
        asyncio.run(count())
    with Redis.from_url(url) as redis:
        redis.flushall()
    restored = afa("ledger", "restore", place)
    assert "restored 1 accounts" in restored.output, restored.stderr
    assert "507" in afa("credits", "show", "bob").output
    assert afa("credits", "audit").exit_code == 0
    table = tmp_path / "entries.parquet"
    assert "wrote 5 entries" in afa("ledger", "export", place, "--parquet", str(table)).output
    assert "no month ahead" in afa("ledger", "repair-period", "bob").output
    assert afa("ledger", "verify", str(tmp_path / "nowhere")).exit_code == 2
    (tmp_path / "empty").mkdir()
    nothing = afa("ledger", "verify", str(tmp_path / "empty"))
    assert (nothing.exit_code, "nothing is archived" in nothing.stderr) == (1, True)
    begun = afa("ledger", "begin-archive", str(tmp_path / "empty"))
    assert "1 shards begin here" in begun.output, begun.stderr
    assert "its sums are its states" in afa("ledger", "verify", str(tmp_path / "empty")).output
    refused = afa("ledger", "begin-archive", str(tmp_path / "empty"))
    assert (refused.exit_code, "in this archive already" in refused.stderr) == (1, True)
    (tmp_path / "journal" / "head.json").unlink()
    headless = afa("ledger", "verify", place)
    assert (headless.exit_code, "it has no head.json" in headless.output) == (0, True)
    last = max((tmp_path / "journal").rglob("*.jsonl"))
    last.write_bytes(last.read_bytes()[:-9])
    damaged = [afa("ledger", "verify", place)]
    damaged.append(afa("ledger", "export", place, "--parquet", str(table)))
    for refusal in damaged:
        assert (refusal.exit_code, "damaged or cut off" in refusal.output) == (1, True)


def test_adjusting_works_before_the_first_call(url: str) -> None:
    assert afa("keys", "create", "bob", "--tier", "pro").exit_code == 0
    done = afa("credits", "adjust", "bob", "--reason", "test", "--", "-100")
    assert "59900" in done.output, done.stderr


def test_a_payment_of_unknown_outcome_is_repeated_under_its_id(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert afa("keys", "create", "bob").exit_code == 0
    monkeypatch.setenv("AFA_TOPUP_REPLICAS", "1")  # there is none
    refused = afa("credits", "topup", "bob", "100")
    assert refused.exit_code == 1
    (entry,) = re.findall(r"repeat it with (--id \S+)", refused.stderr)
    monkeypatch.delenv("AFA_TOPUP_REPLICAS")
    repeated = afa("credits", "topup", "bob", "100", *entry.split())
    assert re.search(r"packs +│ 100 ", repeated.output), repeated.output


def test_an_operator_without_a_name_is_noted_by_number(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    assert afa("keys", "create", "bob", "--tier", "pro").exit_code == 0
    done = afa("credits", "adjust", "bob", "5", "--reason", "typo")
    assert done.exit_code == 0, done.exception
    with Redis.from_url(url) as redis:
        (stream,) = redis.scan_iter("cr:*:j")
        notes = [json.loads(call[b"w"]) for _, call in redis.xrange(stream) if b"w" in call]
    assert notes == [{"operator": "54321", "reason": "typo"}]


def test_amounts_that_sums_could_not_tell_are_refused(url: str) -> None:
    assert afa("keys", "create", "bob").exit_code == 0
    too_many = "1000000000001"
    terms = {"--threshold": "1", "--pack": "1", "--price": "1", "--cap": "1"}
    for words in (
        ("grant", "bob", too_many),
        ("topup", "bob", too_many),
        ("adjust", "bob", too_many, "--reason", "typo"),
        *(
            ("autotopup", "set", "bob", *chain(*(terms | {name: too_many}).items()))
            for name in terms
        ),
    ):
        refused = afa("credits", *words)
        assert (refused.exit_code, "1000000000000 " in refused.stderr) == (2, True)
    assert afa("credits", "topup", "bob", "1000000000000").exit_code == 0
    refused = afa("credits", "topup", "bob", "1")
    assert refused.exit_code == 1
    assert "with 1 more it would have above 1000000000000" in refused.stderr
    assert afa("credits", "audit").exit_code == 0


def test_a_name_that_is_nobodys_is_refused(url: str) -> None:
    assert afa("keys", "create", "bob").exit_code == 0
    terms = ("--threshold", "20", "--pack", "100", "--price", "500", "--cap", "1200")
    for words in (
        *(("credits", "show"), ("credits", "audit"), ("keys", "list"), ("ledger", "repair-period")),
        *(("credits", "autotopup", "show"), ("credits", "autotopup", "off")),
    ):
        assert afa(*words, "bob").exit_code == 0
        refused = afa(*words, "bbo")
        assert (refused.exit_code, refused.output[:26]) == (1, "afa: there is no owner bbo")
    for command, *more in (
        *(("topup", "5"), ("grant", "5"), ("adjust", "5", "--reason", "typo")),
        ("autotopup set", *terms),
    ):
        for name in ("bbo", "test~bbo"):
            refused = afa("credits", *command.split(), name, *more)
            assert (refused.exit_code, "there is no owner bbo" in refused.output) == (1, True)
    assert afa("credits", "topup", "test~bob", "5").exit_code == 0
    with Redis.from_url(url) as redis:
        assert [key for key in redis.scan_iter() if b"bbo" in key] == []


def test_a_ledger_of_a_later_format_is_refused(url: str) -> None:
    assert afa("credits", "audit").exit_code == 0
    with Redis.from_url(url) as redis:
        redis.set("cr:format", 3)
    done = afa("credits", "audit")
    assert done.exit_code == 1
    assert "has format 3, and this afa reads up to 2" in done.stderr


def test_what_redis_refuses_is_told_in_a_line(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Redis.from_url(url) as redis:
        redis.acl_setuser(
            "amy", enabled=True, passwords=["+pw"], keys=["*"], categories=["+@all", "-@scripting"]
        )
    monkeypatch.setenv("AFA_REDIS_URL", url.replace("unix://", "unix://amy:pw@"))
    done = afa("keys", "create", "bob")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.exception
    assert "afa: Redis refuses this: " in done.stderr
    assert "has no permissions to run" in done.stderr


def test_another_number_of_shards_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert afa("keys", "create", "bob").exit_code == 0
    monkeypatch.setenv("AFA_LEDGER_SHARDS", "8")
    refused = afa("credits", "show", "bob")
    assert refused.exit_code == 1
    assert "AFA_LEDGER_SHARDS=4" in refused.stderr


def test_a_restore_with_another_number_of_shards_is_refused_and_can_be_mended(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner in ("bob", "amy", "carl", "dora"):
        assert afa("keys", "create", owner).exit_code == 0

    async def export() -> int:
        store = connect(url, shards=4, timeout_s=30)
        try:
            return await Exporter(store, Archive((tmp_path / "journal").as_uri())).export()
        finally:
            await store.close()

    assert asyncio.run(export()) == 4
    with Redis.from_url(url) as redis:
        redis.flushall()
        monkeypatch.setenv("AFA_LEDGER_SHARDS", "8")
        refused = afa("ledger", "restore", str(tmp_path / "journal"))
        assert (refused.exit_code, "set AFA_LEDGER_SHARDS as it was" in refused.stderr) == (1, True)
        assert redis.keys() == []
        monkeypatch.setenv("AFA_LEDGER_SHARDS", "4")
        restored = afa("ledger", "restore", str(tmp_path / "journal"))
        assert "restored 4 accounts" in restored.output, restored.stderr
        assert redis.get("cr:shards") == b"4"


def test_a_checkpoint_is_swapped_out_after_the_service_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(prefix="afa-") as folder:
        monkeypatch.delenv("AFA_REDIS_URL", raising=False)
        monkeypatch.setenv("AFA_DATA_DIR", folder)
        server = embedded_redis.start(Path(folder))
        (Path(folder) / "redis.url").write_text(server.url)
        with Redis.from_url(server.url) as redis:
            redis.hset(CHOICE, mapping={"key": "gone", "tags": "gone-too"})
        server.stop()
        done = afa("models", "swap", "key", "default")
        assert done.output.endswith("key: default from the next start on; no replica runs\n")
        server = embedded_redis.start(Path(folder))
        assert server.is_new
        with Redis.from_url(server.url) as redis:
            assert redis.hgetall(CHOICE) == {b"tags": b"gone-too"}
            assert "no replica runs" in afa("models", "swap", "tags", "default").output
            assert redis.hgetall(CHOICE) == {}
        server.stop()


def test_after_the_service_has_ended_it_says_how_to_start_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AFA_REDIS_URL", raising=False)
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path))
    assert "start the service with `afa up`" in afa("credits", "show").output
    (tmp_path / "redis.url").write_text(f"unix://{tmp_path}/redis.sock")  # as `afa down` leaves it
    for words in (("credits", "show"), ("keys", "list")):
        done = afa(*words)
        assert done.exit_code == 1
        assert "not running, and its Redis with it; start it with `afa up`" in done.output
    session = {"pids": {"service": os.getpid()}}
    (tmp_path / "session.json").write_text(json.dumps(session))
    done = afa("keys", "list")
    assert done.exit_code == 1
    assert "the service runs, but its Redis does not answer" in done.output
