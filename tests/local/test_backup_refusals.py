"""An incomplete backup or an occupied place is refused in one line, before anything is touched."""

import json
import os
import shlex
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
from redis import Redis
from typer.testing import CliRunner

from configs.settings import Settings
from serve_app.cli.main import app
from serve_app.local import embedded_redis
from serve_app.local.backup.manifest import BackupError
from serve_app.local.backup.restore import restore_backup
from serve_app.local.backup.take import take_backup
from tests.local.installation import QUIET, Installation, Kept, keep_asset, quiet

pytestmark = [pytest.mark.redis, pytest.mark.timeout(900)]


def spoil(place: Path, how: str) -> None:
    manifest = place / "manifest.json"
    match how:
        case "unfinished":
            manifest.unlink()
        case "changed":
            part = next((place / "journal").rglob("*.jsonl"))
            part.write_bytes(part.read_bytes().replace(b"grant", b"gramt"))
        case "gone":
            next(path for path in (place / "objects").rglob("*") if path.is_file()).unlink()
        case "newer":
            manifest.write_text(manifest.read_text().replace('"format": 2', '"format": 3'))
        case "damaged":
            manifest.write_text(manifest.read_text()[:-100])
        case "misnamed":
            manifest.write_text(manifest.read_text().replace("journal/", "journal,", 1))
        case "nested":
            manifest.write_text("[" * 200_000 + "]" * 200_000)
        case "without secrets":
            (place / "secrets.json").unlink()
            told = json.loads(manifest.read_text())
            del told["parts"]["secrets.json"]
            manifest.write_text(json.dumps(told))
        case "of other secrets":
            (place / "secrets.json").write_text('{"pepper": "hush"}')
            told = json.loads(manifest.read_text())
            told["parts"]["secrets.json"]["sha256"] = sha256(b'{"pepper": "hush"}').hexdigest()
            manifest.write_text(json.dumps(told))


@pytest.mark.parametrize("name", ["manifest.json", "ledger.rdb"])
async def test_a_pipe_is_not_waited_for(folder: Path, kept: Kept, name: str) -> None:
    place = folder / "backup"
    await take_backup(kept.settings(kept.installation.data_dir), place.as_uri(), quiet)
    (place / name).unlink()
    os.mkfifo(place / name)
    with pytest.raises(BackupError, match=rf"no {name}|missing or were changed.*is {name}"):
        await restore_backup(kept.settings(folder / "two"), place.as_uri(), quiet)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("unfinished", "no manifest.json"),
        ("changed", "1 of .* parts are missing or were changed"),
        ("gone", "1 of .* parts are missing or were changed"),
        ("newer", "install that version or a later one"),
        ("damaged", "manifest.json is damaged"),
        ("misnamed", "manifest.json is damaged"),
        ("nested", "manifest.json is damaged"),
        ("without secrets", "manifest.json is damaged"),
        ("of other secrets", "^secrets.json is damaged: use another backup$"),
    ],
)
async def test_a_backup_that_is_not_whole_is_refused(
    folder: Path, kept: Kept, how: str, told: str
) -> None:
    place = folder / "backup"
    await take_backup(kept.settings(kept.installation.data_dir), place.as_uri(), quiet)
    spoil(place, how)
    with pytest.raises(BackupError, match=told):
        await restore_backup(kept.settings(folder / "two"), place.as_uri(), quiet)
    assert not (folder / "two").exists()


async def test_a_place_that_is_not_empty_is_refused(folder: Path, kept: Kept) -> None:
    place, data_dir = (folder / "backup").as_uri(), kept.installation.data_dir
    await take_backup(kept.settings(data_dir), place, quiet)

    async def refused(told: str, settings: Settings) -> None:
        with pytest.raises(BackupError, match=told):
            await restore_backup(settings, place, quiet)

    with pytest.raises(BackupError, match="give each backup its own place"):
        await take_backup(kept.settings(data_dir), place, quiet)
    await refused("there is a ledger in", kept.settings(data_dir))
    session = {"pids": {"service": os.getpid()}}
    (folder / "two").mkdir()
    (folder / "two" / "session.json").write_text(json.dumps(session))
    await refused("a service runs in", kept.settings(folder / "two"))
    (folder / "two" / "session.json").unlink()
    (folder / "two" / "pepper").write_text("another")
    await refused("is another than the backup's", kept.settings(folder / "two"))
    (folder / "two" / "pepper").unlink()
    fewer = Settings(data_dir=folder / "two", ledger_shards=4, **kept.places())
    await refused("set AFA_LEDGER_SHARDS=256", fewer)
    segment = next((folder / "journal").rglob("*.jsonl"))
    segment.rename(folder / "aside")
    await refused("the archive in .* lacks", kept.settings(folder / "two"))
    segment.write_text("{}")
    await refused("has another .* than the backup", kept.settings(folder / "two"))
    assert list((folder / "two").iterdir()) == [folder / "two" / "objects"]
    (folder / "aside").rename(segment)
    (folder / "two" / "library").mkdir()
    (folder / "two" / "library" / "mine").write_text("")
    await refused("there is a library in .* already", kept.settings(folder / "two"))
    (folder / "two" / "library" / "mine").unlink()
    server = embedded_redis.start(folder / "full", extra=("--appendonly", "no"))
    try:
        with Redis.from_url(server.url) as redis:
            redis.set("mine", 1)
            settings = Settings(data_dir=folder / "two", AFA_REDIS_URL=server.url, **kept.places())
            await refused("it has 1 keys", settings)
            assert redis.keys() == [b"mine"]
    finally:
        server.stop()


async def test_a_restore_that_did_not_end_is_no_ledger(folder: Path, kept: Kept) -> None:
    place = (folder / "backup").as_uri()
    await take_backup(kept.settings(kept.installation.data_dir), place, quiet)
    second = Installation(folder / "two", kept.installation.settings)

    def break_off(text: str) -> None:
        if text.startswith("auditing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await restore_backup(kept.settings(second.data_dir), place, break_off)
    second.start()
    with pytest.raises(ValueError, match="restored in part"):
        async with second.stores():
            pass
    second.kill()


async def test_a_backup_that_is_broken_off_leaves_nothing(folder: Path, kept: Kept) -> None:
    place, kept_dir = folder / "backup", kept.installation.data_dir
    at: list[str] = []

    def break_off(text: str) -> None:
        at.append(text)
        if text.startswith("copying journal"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await take_backup(kept.settings(kept_dir), place.as_uri(), break_off)
    assert at[-1] == "removing what was written"
    assert [path for path in place.rglob("*") if path.is_file()] == []
    assert embedded_redis.find_running(kept_dir / "redis-ledger") is None


async def test_a_disk_without_room_is_told_in_one_line(folder: Path, kept: Kept) -> None:
    kept.installation.start()
    async with kept.installation.stores() as stores:
        await keep_asset(stores, QUIET, b"long sound" * 300_000)
    small = f"ulimit -f 1000; exec {shlex.join(kept.installation.command('backup', 'full'))}"
    done = subprocess.run(  # noqa: ASYNC221  nothing else runs
        ["/bin/bash", "-c", small],
        env=kept.installation.environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (folder / "full").exists()
    kept.installation.kill()


def test_commands_tell_what_is_wrong_in_one_line(folder: Path) -> None:
    (folder / "file").write_text("")
    installation = Installation(folder / "one")
    for words, told in {
        ("backup", str(folder / "backup")): "there is no installation in",
        ("backup", str(folder / "file" / "backup")): "Not a directory",
        ("backup", str(folder / "one" / "backup")): "is inside the data folder",
        ("restore", str(folder / "nowhere")): "there is no folder",
        ("restore", str(folder)): "no manifest.json",
    }.items():
        done = CliRunner().invoke(app, words, env=installation.environment())
        assert (done.exit_code, len(done.stderr.strip().splitlines())) == (1, 1), done.output
        assert told in done.stderr


def test_a_backup_that_cannot_be_taken_leaves_the_folders_that_were_there(folder: Path) -> None:
    (folder / "mine" / "empty").mkdir(parents=True)
    for place in ("mine", "mine/new", "new/deeper", "mine/empty"):
        done = CliRunner().invoke(
            app, ["backup", str(folder / place)], env=Installation(folder / "one").environment()
        )
        assert "there is no installation in" in done.stderr
    assert sorted(path.name for path in folder.rglob("*")) == ["empty", "mine"]


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_place_has_a_name(command: str) -> None:
    answer = CliRunner().invoke(app, [command, ""])
    assert (answer.exit_code, answer.output) == (1, "afa: name a folder, or s3://bucket/prefix\n")
