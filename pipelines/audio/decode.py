"""Decode untrusted audio files to 44.1 kHz, each in a sandboxed child process.

A spawner process per `Decoder` (see `pipelines.audio.decode_spawner`) imports PyAV once and forks a
child per file. The child gets the file as stdin, a pipe as stdout and memory for the samples. It
has no file system, no network, no way to start anything, and limits on memory, processor time and
wall-clock time. Its output is trusted as little as the file (see `pipelines.audio.decode_answer`).
PyAV is never imported in this process. As in players, a damaged or truncated file yields whatever
can be decoded, unless more of its packets fail than succeed or less than ``min_seconds`` remain.
More than two channels are mixed down to stereo.

Invariant: every sample that leaves here is finite and within ±`shared_rows.LOUDEST`.
"""

import atexit
import contextlib
import errno
import fcntl
import functools
import importlib.util
import json
import math
import mmap
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path

from pipelines.audio.decode_answer import Answer, AudioClaims
from pipelines.audio.shared_rows import SharedRows
from pipelines.audio.waveform import SAMPLE_RATE, Waveform

AV_VERSION = "18.1.0"
"""The PyAV release whose bundled FFmpeg is known to keep to the whitelists."""

SPAWNER = Path(__file__).with_name("decode_spawner.py")
GRACE_S = 5.0
"""How long after its deadline a child's end may go unreported before we stop waiting."""


class DecoderUnavailableError(RuntimeError):
    """The decoding process cannot start: a fault of the installation, never of the audio."""


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """What one file may cost.

    Attributes:
        max_seconds: Longer audio raises `AudioTooLongError`.
        min_seconds: Shorter audio raises `AudioTooShortError`.
        max_channels: More raise `UndecodableAudioError`.
        address_space_bytes: Mappings of the child, including code (about 150 MB).
        cpu_s: Processor time of the child; by default a 60th of ``max_seconds``, at least 30. An
            hour of Opus takes some 20.
        wall_s: Wall-clock time of the child; by default twice ``cpu_s``.
    """

    max_seconds: float = 900.0
    min_seconds: float = 1.0
    max_channels: int = 8
    address_space_bytes: int = 1 << 30
    cpu_s: int = 0
    wall_s: float = 0.0

    def __post_init__(self) -> None:
        cpu_s = self.cpu_s or max(30, math.ceil(self.max_seconds / 60))
        object.__setattr__(self, "cpu_s", cpu_s)
        object.__setattr__(self, "wall_s", self.wall_s or 2.0 * cpu_s)


class Decoder:
    """A spawner process and its interface; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def decode(self, source: Path, limits: DecodeLimits) -> Waveform:
        """Decode a whole file.

        Args:
            source: A regular file; neither its name nor its suffix matters.
            limits: What it may cost.

        Returns:
            ``[C, T]`` at 44.1 kHz, each channel contiguous, C = 1 for mono sources, else 2; float16
            beyond `LONG`, else float32.

        Raises:
            AudioError: With a message for the sender of the file.
            DecoderUnavailableError: The installation lacks PyAV or forbids processes.
            OSError: It cannot be opened, or is not a regular file.
        """
        capacity = int(limits.max_seconds * SAMPLE_RATE)
        with self._child(source, "whole", limits, capacity) as child:
            child.expect(b"I")
            (samples,) = child.stretches([capacity])
            return Waveform(samples)

    def decode_segments(
        self, source: Path, segments: Sequence[tuple[float, float]], limits: DecodeLimits
    ) -> list[Waveform]:
        """Decode only ``(start_s, duration_s)`` stretches, seeking to each.

        Returns:
            One waveform per segment, in order; shorter (or empty) where the track ends first.
        """
        capacities = [max(0, round(duration_s * SAMPLE_RATE)) + 1 for _, duration_s in segments]
        with self._child(
            source, "segments", limits, sum(capacities), segments=list(segments)
        ) as child:
            child.expect(b"I")
            return [Waveform(samples) for samples in child.stretches(capacities)]

    def check_head(self, source: Path, limits: DecodeLimits) -> None:
        """Decode and discard the first seconds; the file may be of any length.

        Raises:
            AudioError: It is not audio, or not of an accepted kind.
            DecoderUnavailableError: The installation lacks PyAV or forbids processes.
        """
        with self._child(source, "head", limits) as child:
            child.expect(b"I")
            child.expect(b".")

    def probe(self, source: Path, limits: DecodeLimits) -> AudioClaims:
        """Read the headers only."""
        with self._child(source, "probe", limits) as child:
            return child.claims()

    def digest_packets(self, source: Path, limits: DecodeLimits) -> str:
        """Hash the encoded audio; the file's tags and cover do not affect the hash.

        Returns:
            Hex SHA-256 of the packets of the first audio stream.

        Raises:
            AudioError: It is not audio.
            DecoderUnavailableError: The installation lacks PyAV or forbids processes.
        """
        with self._child(source, "digest", limits) as child:
            child.expect(b"I")
            return child.digest()

    def read_labels(self, source: Path, limits: DecodeLimits) -> dict[str, str]:
        """Read the container's own tags, up to a maximum number, each truncated.

        Raises:
            AudioError: It is not audio.
            DecoderUnavailableError: The installation lacks PyAV or forbids processes.
        """
        with self._child(source, "labels", limits) as child:
            child.expect(b"I")
            return child.labels()

    def active_walls(self) -> dict[str, str]:
        """Return the state of every wall: "on", or "off: " and the reason."""
        with self._child(SPAWNER, "walls", DecodeLimits()) as child:
            walls: dict[str, str] = json.loads(child.expect(b"I"))
        return walls

    @property
    def process_id(self) -> int:
        """The spawner's process id; 0 before the first use."""
        return 0 if self._process is None else self._process.pid

    def close(self) -> None:
        """End the spawner, and with it any children that are still running."""
        with self._lock:
            self._stop()

    @contextlib.contextmanager
    def _child(
        self, source: Path, task: str, limits: DecodeLimits, capacity: int = 0, **more: object
    ) -> Iterator[Answer]:
        deadline = time.monotonic() + limits.wall_s + GRACE_S
        with contextlib.ExitStack() as ours:
            with contextlib.ExitStack() as given:
                try:
                    samples = os.memfd_create("samples", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
                    given.callback(os.close, samples)
                    rows = SharedRows(samples, capacity)
                    output, output_end = _pipe(ours, given)
                    status, status_end = _pipe(ours, given)
                except OSError as error:
                    raise DecoderUnavailableError(f"No memory or pipe is left: {error}.") from error
                asked = {"task": task, **asdict(limits), "row_samples": rows.row_samples, **more}
                audio = given.enter_context(_opened(source))
                self._send(
                    json.dumps(asked).encode(), [audio.fileno(), output_end, samples, status_end]
                )
            yield Answer(output, status, rows, deadline)

    def _send(self, request: bytes, descriptors: list[int]) -> None:
        with self._lock:
            for attempt in (1, 2):
                control = self._control or self._start()
                try:
                    socket.send_fds(control, [request], descriptors)
                except OSError as fault:  # the spawner is gone: one fresh start
                    self._stop()
                    if attempt == 2:
                        raise DecoderUnavailableError(f"the decoder ended: {fault}") from fault
                else:
                    return

    def _start(self) -> socket.socket:
        if sys.platform != "linux":
            raise DecoderUnavailableError(
                f"audio is decoded behind walls that {sys.platform} does not have; run afa on "
                "Linux, in a container or a virtual machine"
            )
        spec = importlib.util.find_spec("av")
        if spec is None or spec.origin is None:
            raise DecoderUnavailableError("PyAV is not installed")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own file, fixed arguments
                [
                    sys.executable,
                    *("-I", "-S", str(SPAWNER), str(Path(__file__).parents[2])),
                    *(str(Path(spec.origin).parent.parent), AV_VERSION),
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"LC_ALL": "C.UTF-8", "PATH": os.defpath},
                # Ctrl-C is for this process; the spawner ends with its socket.
                process_group=0,
            )
        self._control = ours
        ours.settimeout(30.0)
        try:
            hello = json.loads(ours.recv(65_536) or b'{"fault": "it ended at once"}')
        except TimeoutError:
            hello = {"fault": "no answer"}
        ours.settimeout(None)
        if "fault" in hello:
            self._stop()
            raise DecoderUnavailableError(f"the decoder does not start: {hello['fault']}")
        return ours

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(timeout=2.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


def _opened(source: Path) -> FileIO:
    """Open a file for reading.

    Raises:
        OSError: It cannot be opened, its name is impossible, or it is not a regular file: a pipe
            could block, and a device may never end.
    """
    try:
        file = open(source, "rb", buffering=0, opener=_at_once)  # noqa: SIM115 - given away open
    except ValueError as error:  # a zero byte, or what the file system's encoding lacks
        raise OSError(errno.EINVAL, "no file can have this name", str(source)) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a plain file", str(source))
    return file


def _at_once(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)


def _pipe(ours: contextlib.ExitStack, given: contextlib.ExitStack) -> tuple[int, int]:
    """Make a pipe; ``ours`` closes its reading end, ``given`` its writing end.

    It holds little, so that a child is at most minutes of audio ahead of us.
    """
    reading, writing = os.pipe()
    ours.callback(os.close, reading)
    given.callback(os.close, writing)
    with contextlib.suppress(OSError):
        fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, mmap.PAGESIZE)
    return reading, writing


@functools.cache
def default_decoder() -> Decoder:
    """The decoder of this process, started on first use and ended at exit."""
    decoder = Decoder()
    atexit.register(decoder.close)
    return decoder


def decode(source: Path, limits: DecodeLimits) -> Waveform:
    """Decode a whole file with the process's own decoder; see `Decoder.decode`."""
    return default_decoder().decode(source, limits)


def decode_segments(
    source: Path, segments: Sequence[tuple[float, float]], limits: DecodeLimits
) -> list[Waveform]:
    """Decode stretches of a file with the process's own decoder; see `Decoder.decode_segments`."""
    return default_decoder().decode_segments(source, segments, limits)


def check_head(source: Path, limits: DecodeLimits) -> None:
    """Check a file's beginning with the process's own decoder; see `Decoder.check_head`."""
    default_decoder().check_head(source, limits)


def probe(source: Path, limits: DecodeLimits) -> AudioClaims:
    """Read a file's headers with the process's own decoder."""
    return default_decoder().probe(source, limits)


def digest_packets(source: Path, limits: DecodeLimits) -> str:
    """Hash a file's audio with the process's own decoder; see `Decoder.digest_packets`."""
    return default_decoder().digest_packets(source, limits)


def read_labels(source: Path, limits: DecodeLimits) -> dict[str, str]:
    """Read a container's tags with the process's own decoder; see `Decoder.read_labels`."""
    return default_decoder().read_labels(source, limits)


def active_walls() -> dict[str, str]:
    """Return the state of every wall around decoding on this machine."""
    return default_decoder().active_walls()
