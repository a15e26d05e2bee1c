"""Read what a decoding child sends, trusting it as little as the file that it was given.

A message that no honest child writes counts as a crash, and samples are read only once the child
has ended and can no longer change them. The messages are those of `pipelines.audio.decode_child`.
"""

import itertools
import json
import math
import os
import re
import select
import signal
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.audio.decode_child import HEADER
from pipelines.audio.shared_rows import LOUDEST, SharedRows
from pipelines.audio.waveform import (
    AudioError,
    AudioTooLongError,
    AudioTooShortError,
    Samples,
    UndecodableAudioError,
)

MAX_TEXT_BYTES = 4096
MAX_LABELS_BYTES = 1 << 20

MOST_WRONG = 0.01
"""Share of samples that may be invalid. They are silenced, just as damaged packets are skipped: a
flipped bit in an MP3 or AAC file can make a frame of samples of up to 55,000 (measured); one flip
per second spoils .8 % of the samples. A float file with more was computed wrongly."""

_ERRORS = {
    kind.code: kind for kind in (UndecodableAudioError, AudioTooLongError, AudioTooShortError)
}
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TOO_SLOW = "The audio takes too long to decode; use MP3, WAV, FLAC, OGG or M4A."
_NO_SOUND = (
    "{:.0%} of the audio's samples are not sound: not a number, infinite, or more than "
    f"{LOUDEST:g} times full scale; export it again with samples between -1 and 1."
)
_CRASHED = "The audio file cannot be decoded; send it as MP3, WAV, FLAC, OGG or M4A."


class DecodingTooSlowError(UndecodableAudioError):
    """The child was killed because it took too long."""


class DecoderCrashedError(UndecodableAudioError):
    """The child ended without an answer, or with one that no honest child gives."""


@dataclass(frozen=True, slots=True)
class AudioClaims:
    """What a file's headers say about it; as untrustworthy as the file.

    Attributes:
        duration_s: None if the container does not state it.
        sample_rate: Hz.
    """

    container: str
    codec: str
    sample_rate: int
    channels: int
    duration_s: float | None


class Answer:
    """One child's answer: our ends of its pipes, and its samples.

    Args:
        output: Descriptor on which its messages arrive.
        status: Descriptor on which the spawner reports how it ended.
        rows: Holds its samples.
        deadline: Monotonic time after which we stop waiting.
    """

    def __init__(self, output: int, status: int, rows: SharedRows, deadline: float) -> None:
        self._output = output
        self._status = status
        self._rows = rows
        self._deadline = deadline

    def expect(self, tag: bytes, most: int = MAX_TEXT_BYTES) -> bytes:
        """Read one JSON message with ``tag``, at most ``most`` bytes of it."""
        found, _, size = self._header()
        payload = self._payload(min(size, most))
        if found != tag:
            raise _refusal(payload)
        return payload

    def claims(self) -> AudioClaims:
        """Read what it reports about the headers."""
        return _claims(self.expect(b"I"))

    def digest(self) -> str:
        """Read a hex SHA-256."""
        digest = self.expect(b"I").decode("ascii", "replace").strip('"')
        if _DIGEST.fullmatch(digest) is None:
            raise DecoderCrashedError(_CRASHED)
        return digest

    def labels(self) -> dict[str, str]:
        """Read names and texts."""
        try:
            labels = json.loads(self.expect(b"I", MAX_LABELS_BYTES))
        except (ValueError, RecursionError) as error:
            raise DecoderCrashedError(_CRASHED) from error
        if type(labels) is not dict or not all(type(text) is str for text in labels.values()):
            raise DecoderCrashedError(_CRASHED)
        return labels

    def stretches(self, capacities: Sequence[int]) -> list[Samples]:
        """Wait for the child to end; return what it has written, ``[C, T]``, T ≤ its capacity."""
        rows, edges = self._rows, [0]
        for capacity in capacities:
            most = rows.n + capacity
            while (header := self._header())[0] != b"S":
                tag, channels, size = header
                if tag != b"P":
                    raise _refusal(self._payload(min(size, MAX_TEXT_BYTES)))
                is_odd = channels not in (1, 2) or rows.channels not in (0, channels)
                if is_odd or not 0 < size <= most - rows.n:
                    raise DecoderCrashedError(_CRASHED)
                rows.take(channels, size)
            edges.append(rows.n)
        self.expect(b".")
        self._end()
        samples, n_wrong = rows.checked()
        if n_wrong > MOST_WRONG * samples.size:
            raise UndecodableAudioError(_NO_SOUND.format(n_wrong / samples.size))
        return [samples[:, start:stop] for start, stop in itertools.pairwise(edges)]

    def _header(self) -> tuple[bytes, int, int]:
        header = bytearray(HEADER.size)
        self._read(memoryview(header))
        tag, channels, size = HEADER.unpack(header)
        return tag, channels, size

    def _payload(self, size: int) -> bytes:
        payload = bytearray(size)
        self._read(memoryview(payload))
        return bytes(payload)

    def _read(self, target: memoryview) -> None:
        while target:
            self._wait(self._output)
            n = os.readv(self._output, [target])
            if n == 0:
                self._end()
                raise DecoderCrashedError(_CRASHED)
            target = target[n:]

    def _end(self) -> None:
        """Wait until the child has ended, and check that it succeeded."""
        self._wait(self._status)
        status = os.read(self._status, 4)
        code = os.waitstatus_to_exitcode(struct.unpack("<i", status)[0]) if status else None
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            raise DecodingTooSlowError(_TOO_SLOW)
        if code != 0:
            raise DecoderCrashedError(_CRASHED)

    def _wait(self, descriptor: int) -> None:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        remaining_s = self._deadline - time.monotonic()
        if remaining_s <= 0 or not poll.poll(remaining_s * 1000):
            raise DecodingTooSlowError(_TOO_SLOW)


def _refusal(payload: bytes) -> AudioError:
    try:
        code, message = json.loads(payload)
        return _ERRORS[code](str(message))
    except (ValueError, KeyError, TypeError, RecursionError):
        return DecoderCrashedError(_CRASHED)


def _claims(payload: bytes) -> AudioClaims:
    """Read what a child reports about the headers.

    Raises:
        DecoderCrashedError: No honest child would report this.
    """
    try:
        claims = AudioClaims(**json.loads(payload))
    except (ValueError, TypeError, RecursionError) as error:
        raise DecoderCrashedError(_CRASHED) from error
    texts, counts = (claims.container, claims.codec), (claims.sample_rate, claims.channels)
    duration_s = claims.duration_s
    if not (
        all(type(text) is str for text in texts)
        and all(type(count) is int and count >= 0 for count in counts)
        and (duration_s is None or (type(duration_s) is float and math.isfinite(duration_s)))
    ):
        raise DecoderCrashedError(_CRASHED)
    return claims
