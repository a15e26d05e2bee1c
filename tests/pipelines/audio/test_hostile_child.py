"""A decoder whose child was taken over: attack code runs in it, inside the real sandbox."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipelines.audio.decode import DecodeLimits, Decoder
from pipelines.audio.shared_rows import SharedRows
from pipelines.audio.waveform import UndecodableAudioError

ROOT = Path(__file__).parents[3]
SCRIPT = f"""
import errno, json, os, signal, struct, sys, time
sys.path.insert(0, {str(ROOT)!r})
from pipelines.audio import decode_child, decode_spawner

def send(tag, channels, payload, n=None):
    size = len(payload) if n is None else n
    os.write(1, decode_child.HEADER.pack(tag, channels, size) + payload)

CLAIMS = b'{{}}'

def attack(request, walls):
{{attack}}

decode_child.serve_request = attack
decode_spawner.main(*sys.argv[1:])
"""
DEAF = """
    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except OSError:
            pass
    while True:
        time.sleep(1)
"""
WALL_S = 1.0


@pytest.fixture
def audio(tmp_path: Path) -> Path:
    path = tmp_path / "audio"
    path.write_bytes(b"RIFF")
    return path


@pytest.fixture
def taken_over(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Decoder]:
    script = tmp_path / "spawner.py"
    script.write_text(SCRIPT.replace("{attack}", request.param))
    monkeypatch.setattr("pipelines.audio.decode.SPAWNER", script)
    decoder = Decoder()
    yield decoder
    decoder.close()


def children_of(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or is a zombie that its new parent has not reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not has_ended(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return has_ended(pid)


def ignored_signals(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (mask,) = (line.split()[1] for line in lines if line.startswith("SigIgn:"))
    return int(mask, 16).bit_count()


@pytest.mark.parametrize("taken_over", [DEAF], indirect=True)
def test_a_child_that_ignores_every_signal_is_killed_at_its_deadline(
    taken_over: Decoder, audio: Path
) -> None:
    begun = time.monotonic()
    with pytest.raises(UndecodableAudioError, match="too long to decode"):
        taken_over.decode(audio, DecodeLimits(wall_s=WALL_S))
    assert WALL_S * 0.9 < time.monotonic() - begun < WALL_S + 120.0
    assert children_of(taken_over.process_id) == []


def deaf_child(decoder: Decoder, audio: Path) -> int:
    """Start a child that only SIGKILL ends, and leave it running."""
    with decoder._child(audio, "whole", DecodeLimits(wall_s=600.0)):
        deadline = time.monotonic() + 120
        while not children_of(decoder.process_id) and time.monotonic() < deadline:
            time.sleep(0.02)
        (pid,) = children_of(decoder.process_id)
        while ignored_signals(pid) < 30 and time.monotonic() < deadline:
            time.sleep(0.02)
    time.sleep(0.1)
    assert not has_ended(pid)
    return pid


@pytest.mark.parametrize("taken_over", [DEAF], indirect=True)
def test_a_child_ends_when_the_decoder_is_closed(taken_over: Decoder, audio: Path) -> None:
    pid = deaf_child(taken_over, audio)
    taken_over.close()
    assert ends_within(pid, 60.0)


@pytest.mark.parametrize("taken_over", [DEAF], indirect=True)
def test_a_child_ends_when_the_spawner_is_killed(taken_over: Decoder, audio: Path) -> None:
    pid = deaf_child(taken_over, audio)
    os.kill(taken_over.process_id, signal.SIGKILL)
    assert ends_within(pid, 60.0)


STAT = """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    found = []
    for flags in (0, 0x100, 0x1000):
        ctypes.set_errno(0)
        code = libc.syscall({number}, -100, b"/etc/passwd", ctypes.create_string_buffer(512), flags)
        found.append([code, ctypes.get_errno()])
    try:
        os.stat("/etc/passwd")
    except PermissionError:
        found.append("refused")
    send(b"E", 0, json.dumps(["unprocessable_audio", json.dumps(found)]).encode())
"""


@pytest.mark.parametrize(
    "taken_over",
    [STAT.replace("{number}", "262" if os.uname().machine == "x86_64" else "79")],
    indirect=True,
)
def test_no_path_can_be_asked_about(taken_over: Decoder, audio: Path) -> None:
    """Not with AT_EMPTY_PATH either: the kernel still follows a path that is not empty."""
    with pytest.raises(UndecodableAudioError) as refusal:
        taken_over.probe(audio, DecodeLimits())
    assert str(refusal.value) == '[[-1, 1], [-1, 1], [-1, 1], "refused"]'


STILL_OPEN = """
    def is_open(descriptor):
        try:
            os.lseek(descriptor, 0, os.SEEK_CUR)
        except OSError as error:
            return error.errno != errno.EBADF
        return True
    found = [descriptor for descriptor in range(4096) if is_open(descriptor)]
    send(b"E", 0, json.dumps(["unprocessable_audio", str(found)]).encode())
"""


@pytest.mark.parametrize("taken_over", [STILL_OPEN], indirect=True)
def test_nothing_else_of_the_spawner_is_open(taken_over: Decoder, audio: Path) -> None:
    """A process with the status pipe could report how the child ended."""
    with pytest.raises(UndecodableAudioError) as refusal:
        taken_over.probe(audio, DecodeLimits())
    assert str(refusal.value) == "[0, 1, 2, 3]"


TRACK = """
    n = 44_100
    def write(value):
        os.lseek(decode_child.SAMPLES, 0, os.SEEK_SET)
        os.write(decode_child.SAMPLES, struct.pack("<f", value) * n)
    send(b"I", 0, CLAIMS)
    write(0.5)
    for tag, size in ((b"P", n), (b"S", 0), (b".", 0)):
        send(tag, 1, b"", size)
"""


@pytest.mark.parametrize("taken_over", [TRACK], indirect=True)
def test_a_child_may_write_a_track(taken_over: Decoder, audio: Path) -> None:
    samples = taken_over.decode(audio, DecodeLimits()).samples
    np.testing.assert_array_equal(samples, np.full((1, 44_100), 0.5))


@pytest.mark.parametrize(
    "taken_over", [TRACK + "    time.sleep(0.5)\n    write(float('nan'))"], indirect=True
)
def test_samples_that_change_behind_the_last_message_are_looked_at(
    taken_over: Decoder, audio: Path
) -> None:
    with pytest.raises(UndecodableAudioError, match="100% of the audio's samples are not sound"):
        taken_over.decode(audio, DecodeLimits())


@pytest.mark.parametrize("taken_over", [TRACK + "    time.sleep(600)"], indirect=True)
def test_a_track_of_a_child_that_lives_on_is_not_taken(taken_over: Decoder, audio: Path) -> None:
    with pytest.raises(UndecodableAudioError, match="too long to decode"):
        taken_over.decode(audio, DecodeLimits(wall_s=WALL_S))


BEYOND = {
    "a write beyond the memory": "os.lseek(3, 8 * request['row_samples'], 0); os.write(3, b'x')",
    "an end of another kind": "os._exit(3)",
}


@pytest.mark.parametrize("taken_over", [f"{TRACK}    {a}" for a in BEYOND.values()], indirect=True)
def test_a_child_that_ends_badly_behind_its_last_message_is_a_crash(
    taken_over: Decoder, audio: Path
) -> None:
    with pytest.raises(UndecodableAudioError, match="cannot be decoded"):
        taken_over.decode(audio, DecodeLimits())


def test_the_memory_of_the_samples_keeps_its_size() -> None:
    descriptor = os.memfd_create("samples", os.MFD_ALLOW_SEALING)
    SharedRows(descriptor, 1000)
    for n_bytes in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, n_bytes)
    os.close(descriptor)


BLOCKS = {
    "no channels": 'send(b"I", 0, CLAIMS); send(b"P", 0, b"", 5); send(b".", 0, b"")',
    "three channels": 'send(b"I", 0, CLAIMS); send(b"P", 3, b"", 5); send(b".", 0, b"")',
    "other channels": 'send(b"I", 0, CLAIMS); send(b"P", 1, b"", 5); '
    'send(b"P", 2, b"", 5); send(b".", 0, b"")',
    "empty blocks": 'send(b"I", 0, CLAIMS)\n    while True: send(b"P", 1, b"")',
    "a block over the limit": 'send(b"I", 0, CLAIMS); send(b"P", 1, b"", 2**32 - 1)',
    "no message": 'send(b"I", 0, CLAIMS); os.write(1, b"\\xff" * 99)',
    "half a header": 'os.write(1, b"I")',
    "nothing": "pass",
    "nonsense as refusal": 'send(b"E", 0, b"\\xff\\xfe")',
    "a deep refusal": 'send(b"E", 0, b"[" * 4096)',
    "an unhashable refusal": 'send(b"E", 0, b"[[], 1]")',
    "an unknown refusal": 'send(b"E", 0, b\'["internal_error", "x"]\')',
}


@pytest.mark.parametrize("taken_over", [f"    {a}" for a in BLOCKS.values()], indirect=True)
def test_messages_of_no_honest_child_are_a_crash(taken_over: Decoder, audio: Path) -> None:
    with pytest.raises(UndecodableAudioError, match="cannot be decoded"):
        taken_over.decode(audio, DecodeLimits(wall_s=60.0))


CLAIMS = [
    "{",
    "[]",
    "null",
    '"text"',
    "[" * 4000,
    '{"container": "mp3"}',
    '{"__class__": 1}',
    '{"container": 1, "codec": "mp3", "sample_rate": 1, "channels": 1, "duration_s": 1.0}',
    '{"container": "", "codec": "", "sample_rate": "1", "channels": 1, "duration_s": 1.0}',
    '{"container": "", "codec": "", "sample_rate": 1, "channels": -1, "duration_s": 1.0}',
    '{"container": "", "codec": "", "sample_rate": 1, "channels": 1, "duration_s": NaN}',
    '{"container": "", "codec": "", "sample_rate": 1, "channels": 1, "duration_s": {}}',
]


@pytest.mark.parametrize(
    "taken_over", [f'    send(b"I", 0, {claims.encode()!r})' for claims in CLAIMS], indirect=True
)
def test_claims_of_no_honest_child_are_a_crash(taken_over: Decoder, audio: Path) -> None:
    with pytest.raises(UndecodableAudioError, match="cannot be decoded"):
        taken_over.probe(audio, DecodeLimits())
