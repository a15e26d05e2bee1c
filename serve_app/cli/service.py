"""`afa up` and `afa down`: the local service."""

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import httpx
import psutil
import typer

from configs.settings import Settings
from pipelines.audio.decode import DecoderUnavailableError, active_walls
from serve_app.api.wire.features import AnalysisFeatures
from serve_app.cli.environment import console, fail, told
from serve_app.cli.examination.redis_roles import of_access
from serve_app.cli.identify import build, rows_of
from serve_app.cli.models import pull_defaults
from serve_app.cli.output.table import features_table
from serve_app.composition.files import LocalFiles, make_private
from serve_app.composition.outside import outside_services
from serve_app.local.embedded_redis import (
    LocalRedisError,
    find_abandoned,
    find_binary,
    is_alive,
    refuse_older,
)
from serve_app.local.locks import take_lock
from serve_app.local.processes import birth, descendants
from serve_app.providers.fingerprints.manifest import FingerprintIndexError, is_current

DEMO_CATALOG = Path(__file__).parent.parent / "data" / "demo_catalog.parquet"
DEMO = Path(__file__).parent.parent / "data" / "demo.mp3"
LEAST_FREE_MB = 200
START_LIMIT_S = 600.0
STOP_LIMIT_S = 90.0
ORPHANS_LIMIT_S = 10.0
"""Wait for a killed service's processes: Redis ends at once, Ray's helpers after a minute."""
DEMO_LIMIT_S = 180.0
POLL_WAIT_S = 10


def up(
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port to listen on; 8000 if not given."),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; 127.0.0.1 if not given.")
    ] = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay in the foreground; Ctrl-C stops everything.")
    ] = False,
    demo: Annotated[bool, typer.Option(help="Analyse the bundled track afterwards.")] = True,
) -> None:
    """Start the service on this machine and show that it works."""
    files = LocalFiles(Settings().data_dir.absolute())
    check_folder(files.data_dir)
    session = running_session(files)
    if session is not None:
        refuse_another(session["url"], files.data_dir, host, port)
        console.print(f"already running at {session['url']} ({files.data_dir})")
    else:
        check_remains(files)
        lock = lock_start(files)
        host, port = host or "127.0.0.1", port or 8000
        check_address(host, port, "`afa up --host`", "`afa up --port N`")
        check_metrics_address(Settings(), port)
        check_redis(Settings())
        with told(ValueError):
            outside_services(Settings())
        with told(DecoderUnavailableError):
            active_walls()
        pull_defaults(Settings())
        os.umask(0o077)  # new files from here on are in the data folder
        with told(FingerprintIndexError):
            if not is_current(files.fingerprint_dir):
                build(files.fingerprint_dir, list(rows_of(DEMO_CATALOG)))
        command = [sys.executable, "-m", "serve_app.local.service"]
        command += ["--host", host, "--port", str(port)]
        environment = os.environ | {"AFA_DATA_DIR": str(files.data_dir)}
        if foreground:
            os.set_inheritable(lock, True)
            os.execve(sys.executable, command, environment)  # noqa: S606  our own interpreter
        session = start_in_background(files, command, environment, lock)
    if demo:
        run_demo(session)


def check_remains(files: LocalFiles) -> None:
    """Fail early if processes of an earlier start of this folder's service still run."""
    if not files.session_path.exists():
        return
    remains = remaining(files)
    if "service" in remains:
        fail(
            "the service of this folder runs, but cannot take requests; `afa status` says why, and "
            "`afa down`, then `afa up` starts it again"
        )
    if remains:
        fail("a service of this folder was killed and left parts; `afa down`, then `afa up`")


def lock_start(files: LocalFiles) -> int:
    """Keep other starts out of a data folder; return the lock, which the service must inherit.

    It is released when the last process that has it ends.
    """
    lock = os.open(files.lock_path, os.O_RDWR | os.O_CREAT, 0o600)
    if not take_lock(lock):
        fail(
            f"another `afa up` of {files.data_dir} is under way; wait until it is ready, end it "
            "with `afa down`, or start a second service next to it with --data-dir OTHER and "
            "another --port"
        )
    note_start(lock, os.getpid())
    return lock


def note_start(lock: int, pid: int) -> None:
    """Note the process in which a start continues, for `down` and `status`."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{pid} {os.fstat(lock).st_ino} {birth(pid)}".encode(), 0)


def starting(files: LocalFiles) -> int | None:
    """Return the process of a start that is under way, if there is one.

    A copy of the folder has the note in a different file, so it does not count. An older afa's note
    does not name a process.
    """
    try:
        words = files.lock_path.read_text(encoding="utf-8").split()
        own = files.lock_path.stat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None
    match words:
        case [pid, file, *born] if file == str(own) and birth(int(pid)) == " ".join(born):
            return int(pid) if remaining(files).get("service") != int(pid) else None
    return None


def check_folder(data_dir: Path) -> None:
    """Make the data folder, or fail early if it cannot be written to or has no room."""
    try:
        make_private(data_dir)
        with tempfile.TemporaryFile(dir=data_dir) as probe:
            probe.write(b"afa")
    except OSError as error:
        fail(
            f"cannot write to {data_dir} ({error.strerror}); make room, or name another folder "
            "with --data-dir"
        )
    free_mb = shutil.disk_usage(data_dir).free / 1e6
    if free_mb < LEAST_FREE_MB:
        fail(
            f"{data_dir} has {free_mb:.0f} MB left, and a full disk stops the service: make room "
            f"for {LEAST_FREE_MB}, or name another folder with --data-dir"
        )


def refuse_another(url: str, folder: Path, host: str | None, port: int | None) -> None:
    """Fail if the service of this folder runs at an address other than the requested one."""
    runs = urlsplit(url)
    if host in (None, runs.hostname) and port in (None, runs.port):
        return
    asked = " ".join(
        f"--{name} {value}" for name, value in (("host", host), ("port", port)) if value is not None
    )
    fail(
        f"the service of {folder} runs at {url} already. To move it: `afa down`, then "
        f"`afa up {asked}`. To start a second one next to it: `afa up {asked} --data-dir OTHER`"
    )


def check_address(host: str, port: int, sets_host: str, sets_port: str) -> None:
    """Fail early if nothing can listen there.

    Args:
        host: An IPv4 address of this machine, or its name.
        port: TCP port.
        sets_host: The option or setting for another host.
        sets_port: The option or setting for another port.
    """
    hosts = f"{sets_host} takes 127.0.0.1 for this machine alone, 0.0.0.0 for all its addresses"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (socket.gaierror, UnicodeError):
            fail(f"cannot listen on {host}: it is no IPv4 address and no known name; {hosts}")
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                fail(f"cannot listen on {host}: this machine does not have that address; {hosts}")
            fail(f"cannot listen on {host}:{port} ({error.strerror}); try {sets_port}")


def check_metrics_address(settings: Settings, public: int) -> None:
    """Fail early if the metrics cannot be served where the settings say."""
    if settings.metrics_address is not None:
        host, _, port = settings.metrics_address.rpartition(":")
        if int(port) == public:
            fail(f"AFA_METRICS_ADDRESS has the port of the service, {port}; name another")
        check_address(host, int(port), "AFA_METRICS_ADDRESS", "another port in AFA_METRICS_ADDRESS")


def check_redis(settings: Settings) -> None:
    """Fail early if there is no Redis, or one that the settings name cannot be used."""
    if settings.redis_url is None:
        with told(LocalRedisError):
            refuse_older(find_binary(), settings.data_dir / "redis-ledger")
    for finding in of_access(settings):
        fail(f"{finding.part}: {finding.state}; {finding.remedy}")


@contextmanager
def held_signals() -> Iterator[list[int]]:
    """Hold signals that would end this process while the block runs; yield those that came."""
    held: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: held.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield held
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM act like Ctrl-C inside this block."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@interrupted_by_sigterm()
def start_in_background(
    files: LocalFiles, command: list[str], environment: dict[str, str], lock: int
) -> dict[str, Any]:
    """Start the service process, show its steps, and return its session once it is ready."""
    # Until the note is written, no other command can end what is started here.
    with held_signals() as held, files.log_path.open("ab") as log:
        start = log.tell()
        process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
            pass_fds=[lock],
        )
        note_start(lock, process.pid)
    try:
        if held:
            raise KeyboardInterrupt
        return watch_start(files, process, start)
    except KeyboardInterrupt:
        console.print("stopping")
        process.terminate()
        process.wait()
        raise


def watch_start(
    files: LocalFiles, process: "subprocess.Popen[bytes]", log_start: int
) -> dict[str, Any]:
    """Show the steps of a start, from where its log begins; return the service's session."""
    deadline = time.monotonic() + START_LIMIT_S
    with files.log_path.open("r", encoding="utf-8", errors="replace") as log:
        log.seek(log_start)
        with console.status("starting"):
            while True:
                for line in iter(log.readline, ""):
                    if line.startswith("afa: "):
                        console.print(line[5:].rstrip(), highlight=False)
                session = running_session(files)
                if session is not None:
                    return session
                if process.poll() is not None:
                    fail(f"the service ended while starting; see {files.log_path}")
                if time.monotonic() > deadline:
                    process.terminate()
                    fail(f"not ready after {START_LIMIT_S:.0f} s; see {files.log_path}")
                time.sleep(0.2)


def running_session(files: LocalFiles) -> dict[str, Any] | None:
    """Return the session if its service is alive and ready."""
    session = files.read_session()
    if session is None or not is_alive(session["pids"]["service"]):
        return None
    try:
        ready = httpx.get(f"{session['url']}/readyz", timeout=5, trust_env=False)
    except httpx.HTTPError:
        return None
    return session if ready.is_success else None


def run_demo(session: dict[str, Any]) -> None:
    """Analyse the bundled track through the API and print the answer."""
    url, key = session["url"], session["local_key"]
    with httpx.Client(
        base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60, trust_env=False
    ) as client:
        started = time.monotonic()
        answer = client.post(
            "/v1/audio-features/upload",
            params={"include_embedding": "true"},
            headers={"Content-Type": "audio/mpeg"},
            content=DEMO.read_bytes(),
        )
        envelope = answer.json()
        with console.status("analysing the bundled track") as status:
            while answer.is_success and envelope["status"] in ("queued", "running"):
                if time.monotonic() - started > DEMO_LIMIT_S:
                    fail(f"the analysis did not end in {DEMO_LIMIT_S:.0f} s; see `afa status`")
                status.update(f"analysing the bundled track: {envelope['_meta']['stage']}")
                path = f"/v1/jobs/{envelope['job_id']}"
                answer = client.get(path, params={"wait": POLL_WAIT_S})
                envelope = answer.json()
        took = time.monotonic() - started
    if not answer.is_success:
        fail(f"the demo request failed: {answer.text}")
    if envelope["status"] == "failed":
        fail(f"the demo job failed: {envelope['error']['message']}")
    features = AnalysisFeatures.model_validate(envelope["result"])
    console.print(
        features_table(features, f"{DEMO.name}, analysed through the API in {took:.1f} s")
    )
    shown = f"{url}/#key={key}" if Settings().playground else f"{url}/docs"
    console.print(
        f"\nOpen  {shown}\n\n"
        f"curl -H 'Authorization: Bearer {key}' -F file=@{os.path.relpath(DEMO)} \\\n"
        f"  '{url}/v1/audio-features/upload?wait=30'\n\n"
        "The key has no limits and works on this machine alone. API reference: "
        f"{url}/docs",
        soft_wrap=True,
        highlight=False,
    )


def down() -> None:
    """Stop the service that `afa up` started or is starting, and nothing else."""
    files = LocalFiles(Settings().data_dir.absolute())
    left = living(files)
    if not left and files.read_session() is None:
        console.print("not running")
        return
    deadline = time.monotonic() + (STOP_LIMIT_S if "service" in left else ORPHANS_LIMIT_S)
    asked = set[int]()
    with console.status("stopping"):
        while left := living(files):
            # The service ends its own processes; what it leaves, such as an older Redis, is next.
            wanted = {left["service"]} if "service" in left else set(left.values())
            for pid in wanted - asked:
                send(pid, signal.SIGTERM)
            asked |= wanted
            if time.monotonic() > deadline:
                for pid in left.values():
                    send(pid, signal.SIGKILL)
                console.print(f"had to kill {', '.join(left)}")
                break
            time.sleep(0.2)
    files.session_path.unlink(missing_ok=True)
    console.print("stopped")


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, which may have just ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def living(files: LocalFiles) -> dict[str, int]:
    """Return the processes of a start under way, otherwise those of the last one that still live.

    After a killed start only its Redis is noted; and a Redis that an older afa restarted is not in
    its session.
    """
    start = starting(files)
    if start is not None:
        return {"service": start, **descendants(start)}
    noted = remaining(files)
    abandoned = find_abandoned(files.data_dir)
    return noted | {name: pid for name, pid in abandoned.items() if pid not in noted.values()}


def remaining(files: LocalFiles) -> dict[str, int]:
    """Return the processes of the last start that still live, name to id."""
    session = files.read_session() or {"pids": {}}
    pids: dict[str, int] = session["pids"]
    return {name: pid for name, pid in pids.items() if is_ours(pid, files.session_path)}


def is_ours(pid: int, session_path: Path) -> bool:
    """Return whether a process that a session names lives, and its id was not reused.

    An older afa noted no births. Then the process must be older than the file, which is wrong if
    the clock was set meanwhile.
    """
    session = LocalFiles(session_path.parent).read_session() or {}
    if "births" in session:
        born: dict[str, str] = session["births"]
        return birth(pid) == born.get(str(pid), "")
    try:
        written_at = session_path.stat().st_mtime
        return is_alive(pid) and psutil.Process(pid).create_time() <= written_at + 1
    except (FileNotFoundError, psutil.Error):
        return False
