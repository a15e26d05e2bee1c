"""A forked child's work on one request inside its walls: read a file, write its samples.

It sees the audio as stdin, the output pipe as stdout, shared memory of a fixed size as `SAMPLES`,
and nothing else. Nothing can be loaded inside the walls: the spawner has already loaded whatever
is imported here while decoding, above all PyAV.

Samples are float32, each channel in a row of its own of the shared memory. Messages on the output
pipe are `HEADER` (tag, channels, n) + payload: ``I`` n bytes of JSON (what the container claims),
``P`` n more samples in each row, ``S`` end of a segment or of the whole file, ``E`` JSON (code,
message), ``.`` done.
"""

import contextlib
import hashlib
import itertools
import json
import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.filter import Graph

HEADER = struct.Struct("<cBI")
SAMPLES = 3
"""Descriptor of the shared memory."""
SAMPLE_RATE = 44_100
BLOCK_SAMPLES = 32_768
MOST_PIECES = 500
"""Pieces of a channel per write; one call writes at most 1,024."""
FRAMES_PER_PULL = 16
"""Frames pushed into a filter graph before its output is fetched: each fetch ends in an error."""
HEAD_S = 3.0
"""This much of a file is decoded to check whether it is audio."""
MOST_PROBED_PACKETS = "2"
"""Packets of a WAV file, 16 KiB each, searched for DTS or AC-3 posing as PCM. They hold eight DTS
frames. By default FFmpeg searches the first megabyte, which takes longer than decoding a minute."""
MOST_BAD_PACKETS = 100
"""A file that begins with this many in a row is not audio."""
MOST_LABELS, MOST_CHARACTERS = 100, 500
"""Limits on a container's tags, and on the name and the text of each."""
LONGEST_PACKET_S = 10.0
"""Anything longer is a pause between packets (a recorder waiting for sound): it has no samples."""
PADDING_S = 1.0
"""Maximum padding that encoders add before and after a track, which yields no samples either."""
PREROLL_S = 0.3
"""Decoded and discarded before a segment, so that bit reservoirs and filters have settled."""

CONTAINERS = (
    "mp3,wav,w64,flac,ogg,mov,mp4,m4a,aac,aiff,matroska,webm,asf,ac3,eac3,wv,tta,au,caf,ape,amr,"
    "mpc,mpc8,dsf,iff"
)
"""Files of one recording. None refers to another file, and none is a tracker score (MOD, XM, IT,
S3M), whose players are programs in themselves."""

CODECS = (
    "mp3,mp3float,mp2,mp2float,mp1,mp1float,aac,aac_latm,flac,vorbis,opus,libopus,alac,ac3,eac3,"
    "wavpack,tta,ape,mpc7,mpc8,wmav1,wmav2,wmapro,wmalossless,amrnb,amrwb,speex,libspeex,"
    "adpcm_ms,adpcm_ima_wav,adpcm_ima_qt,pcm_alaw,pcm_mulaw,pcm_u8,pcm_s8,pcm_s16le,pcm_s16be,"
    "pcm_s24le,pcm_s24be,pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be,pcm_f64le,pcm_f64be,"
    "dsd_lsbf,dsd_lsbf_planar,dsd_msbf,dsd_msbf_planar,dst"
)
MIN_RATE, MAX_RATE = 4_000, 1_411_200
"""Hz; FFmpeg returns DSD as PCM at an eighth of its rate, so the maximum is that of DSD256."""

USE_INSTEAD = "use MP3, WAV, FLAC, OGG or M4A"
NOT_AUDIO = f"This is not an audio file that can be read; {USE_INSTEAD}."
PLAYLIST = f"This is a playlist, script or web page, not audio; {USE_INSTEAD} itself."
DAMAGED = "The audio file is damaged or incomplete; try a whole copy of it."
NO_AUDIO = f"The file holds no audio track; {USE_INSTEAD}."
TOO_MUCH_MEMORY = f"The audio file needs too much memory to decode; {USE_INSTEAD}."

_TEXT_STARTS = (b"#ext", b"ffconcat", b"[playlist]", b"<", b"[reference]", b"file ")
_AUDIO_STARTS = (
    *(b"ID3", b"RIFF", b"RF64", b"riff", b"fLaC", b"OggS", b"FORM", b"\x1a\x45\xdf\xa3"),
    *(b"\x30\x26\xb2\x75", b"\x0b\x77", b"wvpk", b"TTA1", b".snd", b"caff", b"MAC ", b"#!AMR"),
    *(b"MP+", b"MPCK", b"DSD ", b"FRM8"),
)


class RefusedError(Exception):
    """The audio is refused: a code of `pipelines.audio.waveform`, and a message."""


class StandardInput:
    """The audio as a seekable file without a name, so that no demuxer is chosen by extension."""

    def read(self, n: int) -> bytes:
        """Read up to ``n`` bytes."""
        return os.read(0, n)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move, and return the new position."""
        return os.lseek(0, offset, whence)

    def tell(self) -> int:
        """Return the current position."""
        return os.lseek(0, 0, os.SEEK_CUR)


class BlockWriter:
    """Gathers planar samples into blocks of `BLOCK_SAMPLES` and reports each one written.

    Args:
        row_samples: Room for each channel.
    """

    def __init__(self, row_samples: int) -> None:
        self._row_samples = row_samples
        self._waiting: list[list[memoryview]] = []
        self._n_waiting = 0
        self.n_samples = 0

    def message(self, tag: bytes, payload: bytes = b"") -> None:
        """Write one message after whatever samples are waiting."""
        self.flush()
        _write(1, [memoryview(HEADER.pack(tag, 0, len(payload)) + payload)])

    def samples(self, planes: list[memoryview]) -> None:
        """Append float32 samples, one byte view per channel; they are read when written."""
        self._waiting.append(planes)
        n = len(planes[0]) // 4
        self.n_samples += n
        self._n_waiting += n
        if self._n_waiting >= BLOCK_SAMPLES or len(self._waiting) >= MOST_PIECES:
            self.flush()

    def flush(self) -> None:
        """Write the waiting samples."""
        if not self._n_waiting:
            return
        n_written = self.n_samples - self._n_waiting
        rows = [list(row) for row in zip(*self._waiting, strict=True)]
        for number, row in enumerate(rows):
            os.lseek(SAMPLES, 4 * (number * self._row_samples + n_written), os.SEEK_SET)
            _write(SAMPLES, row)
        _write(1, [memoryview(HEADER.pack(b"P", len(rows), self._n_waiting))])
        self._waiting.clear()
        self._n_waiting = 0


def _write(descriptor: int, pieces: list[memoryview]) -> None:
    first = 0
    while first < len(pieces):
        n = os.writev(descriptor, pieces[first:])
        while first < len(pieces) and n >= len(pieces[first]):
            n -= len(pieces[first])
            first += 1
        if n:
            pieces[first] = pieces[first][n:]


class Converter:
    """Turns decoded frames of any kind into float32 planes at 44.1 kHz, mono or stereo.

    Layout, format and rate are taken from every frame, never from the header; a change builds a new
    filter graph. One thread: the child may not start any.
    """

    def __init__(self, max_channels: int) -> None:
        self._max_channels = max_channels
        self._kind: tuple[str, str, int] | None = None
        self._graph: Graph | None = None
        self._n_pushed = 0
        self.layout = ""

    def convert(self, frame: "AudioFrame") -> Iterator["AudioFrame"]:
        """Convert one frame; samples that the resampler holds back come with later frames."""
        kind = (frame.format.name, frame.layout.name, frame.sample_rate)
        if kind != self._kind:
            yield from self.finish()
            self._check(frame)
            self.layout = self.layout or ("mono" if frame.layout.nb_channels == 1 else "stereo")
            ready = kind == ("fltp", self.layout, SAMPLE_RATE)
            self._graph = None if ready else self._build(frame)
            self._kind = kind
        if self._graph is None:
            yield frame
            return
        self._graph.push(frame)
        self._n_pushed += 1
        if self._n_pushed % FRAMES_PER_PULL == 0:
            yield from self._pull()

    def finish(self) -> Iterator["AudioFrame"]:
        """Yield what the resampler still holds."""
        if self._graph is not None:
            self._graph.push(None)
            yield from self._pull()
            self._graph = None
        self._kind = None

    def _check(self, frame: "AudioFrame") -> None:
        channels, rate = frame.layout.nb_channels, frame.sample_rate
        if not 1 <= channels <= self._max_channels:
            raise RefusedError(
                "unprocessable_audio",
                f"The audio has {channels} channels; send at most {self._max_channels}.",
            )
        if not MIN_RATE <= rate <= MAX_RATE:
            raise RefusedError(
                "unprocessable_audio",
                f"The audio has a sample rate of {rate} Hz; send {MIN_RATE} to {MAX_RATE} Hz.",
            )

    def _build(self, frame: "AudioFrame") -> "Graph":
        from av.filter import Graph

        graph = Graph()
        graph.threads = 1
        source = graph.add(
            "abuffer",
            sample_rate=str(frame.sample_rate),
            sample_fmt=frame.format.name,
            channel_layout=frame.layout.name,
            time_base=str(frame.time_base or f"1/{frame.sample_rate}"),
        )
        resample = graph.add("aresample", rematrix_maxval="1.0")
        target = graph.add(
            "aformat",
            sample_rates=str(SAMPLE_RATE),
            sample_fmts="fltp",
            channel_layouts=self.layout,
        )
        sink = graph.add("abuffersink")
        graph.link_nodes(source, resample, target, sink)
        graph.configure()
        return graph

    def _pull(self) -> Iterator["AudioFrame"]:
        if self._graph is None:
            return
        with contextlib.suppress(BlockingIOError, EOFError):
            while True:
                yield self._graph.pull()  # type: ignore[misc]


class FrameSource:
    """Decoded frames of the first audio stream; damaged packets are skipped."""

    def __init__(self) -> None:
        import av

        audio = StandardInput()
        audio.seek(0)
        head = os.pread(0, 4096, 0)
        if not head:
            raise RefusedError(
                "unprocessable_audio", "The file is empty; use one with audio in it."
            )
        if head.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_TEXT_STARTS):
            raise RefusedError("unprocessable_audio", PLAYLIST)
        options = {
            "format_whitelist": CONTAINERS,
            "codec_whitelist": CODECS,
            "protocol_whitelist": "none",
            "max_probe_packets": MOST_PROBED_PACKETS,
        }
        try:
            self.container: InputContainer = av.open(
                audio, "r", container_options=options, metadata_errors="ignore"
            )
        except MemoryError:
            raise
        except (av.error.FFmpegError, ValueError) as fault:
            message = DAMAGED if _looks_like_audio(head) else NOT_AUDIO
            raise RefusedError("unprocessable_audio", message) from fault
        if not self.container.streams.audio:
            raise RefusedError("unprocessable_audio", NO_AUDIO)
        self.stream: AudioStream = self.container.streams.audio[0]
        if self.stream.codec_context is None or self.stream.codec_context.name not in CODECS.split(
            ","
        ):
            raise RefusedError(
                "unprocessable_audio",
                f"The audio is in a codec that is not accepted; {USE_INSTEAD}.",
            )
        self.stream.codec_context.thread_count = 1
        start, unit = self.stream.start_time, self.stream.time_base
        self.start_s = float(start * unit) if start and unit else 0.0
        self.n_good = self.n_bad = 0

    def claims(self) -> dict[str, Any]:
        """What the headers say; none of it is trusted."""
        duration = self.container.duration
        codec = self.stream.codec_context
        return {
            "container": self.container.format.name,
            "codec": codec.name,
            "sample_rate": codec.sample_rate,
            "channels": codec.channels,
            "duration_s": None if duration is None else duration / 1e6,
        }

    def seek(self, position_s: float) -> None:
        """Go to the last place at or before ``position_s`` where decoding can start."""
        from av.error import FFmpegError

        with contextlib.suppress(FFmpegError):  # beyond the end: the next frames will show it
            self.container.seek(int((max(0.0, position_s) + self.start_s) * 1e6))

    def frames(self, give_up_after: int | None = None) -> Iterator["AudioFrame"]:
        """Decode from the current position.

        Args:
            give_up_after: Stop after this many bad packets without a good one.
        """
        from av.error import FFmpegError

        packets = self.container.demux(self.stream)
        while True:
            try:
                packet = next(packets)
            except MemoryError:
                raise
            except (StopIteration, FFmpegError):
                return
            try:
                decoded = packet.decode()
            except MemoryError:
                raise
            except FFmpegError:
                self.n_bad += 1
                if self.n_bad == give_up_after and not self.n_good:
                    return
                continue
            self.n_good += 1
            yield from decoded


def _looks_like_audio(head: bytes) -> bool:
    sync = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0
    return sync or head.startswith(_AUDIO_STARTS) or head[4:8] == b"ftyp"


def planes_of(frame: "AudioFrame", start: int, stop: int) -> list[memoryview]:
    """Byte views of samples ``start`` to ``stop`` of each channel of a planar float frame."""
    return [memoryview(plane)[4 * start : 4 * stop] for plane in frame.planes]


def decode_whole(source: FrameSource, writer: BlockWriter, request: dict[str, Any]) -> None:
    """Write the whole track; refuse it as soon as it is longer than the limit."""
    limit = int(request["max_seconds"] * SAMPLE_RATE)
    too_long = RefusedError(
        "audio_too_long",
        f"The audio is longer than the limit of {request['max_seconds'] / 60:g} minutes.",
    )
    if (source.claims()["duration_s"] or 0.0) > request["max_seconds"]:
        if lasts_longer(source, request["max_seconds"] + PADDING_S):
            raise too_long
        source = FrameSource()
    for frame in _converted(source, request["max_channels"]):
        if writer.n_samples + frame.samples > limit:
            raise too_long
        writer.samples(planes_of(frame, 0, frame.samples))
    if source.n_bad > source.n_good or not writer.n_samples:
        raise RefusedError("unprocessable_audio", DAMAGED)
    duration_s, minimum_s = writer.n_samples / SAMPLE_RATE, request["min_seconds"]
    if duration_s < minimum_s:
        raise RefusedError(
            "audio_too_short",
            f"The audio lasts {int(100 * duration_s) / 100:.2f} s; send at least {minimum_s:g} s.",
        )
    writer.message(b"S")


def lasts_longer(source: FrameSource, limit_s: float) -> bool:
    """Check the length by the packets, without decoding them: a header may lie."""
    from av.error import FFmpegError

    unit = float(source.stream.time_base or 0)
    most, lasted = LONGEST_PACKET_S / unit if unit else 0.0, 0.0
    with contextlib.suppress(FFmpegError):
        for packet in source.container.demux(source.stream):
            lasted += min(packet.duration or 0, most)
            if lasted * unit > limit_s:
                return True
    return False


def decode_head(source: FrameSource) -> None:
    """Refuse a file whose beginning does not decode; its length does not matter."""
    heard_s = 0.0
    for frame in source.frames(give_up_after=MOST_BAD_PACKETS):
        heard_s += frame.samples / max(frame.sample_rate, 1)
        if heard_s >= HEAD_S:
            break
    if source.n_bad > source.n_good or not heard_s:
        raise RefusedError("unprocessable_audio", DAMAGED)


def digest_packets(source: FrameSource) -> str:
    """Hash the audio packets as stored in the container, without its tags."""
    from av.error import FFmpegError

    digest, is_empty = hashlib.sha256(), True
    with contextlib.suppress(FFmpegError):  # damaged from here on, as it is whenever it is read
        for packet in source.container.demux(source.stream):
            digest.update(memoryview(packet))
            is_empty &= not packet.size
    if is_empty:
        raise RefusedError("unprocessable_audio", DAMAGED)
    return digest.hexdigest()


def labels(source: FrameSource) -> dict[str, str]:
    """Return the container's tags and those of the audio stream, except its title."""
    of_stream = {
        name: text for name, text in source.stream.metadata.items() if name.lower() != "title"
    }
    said = itertools.islice((source.container.metadata | of_stream).items(), MOST_LABELS)
    return {name[:MOST_CHARACTERS]: text[:MOST_CHARACTERS] for name, text in said}


def decode_segments(source: FrameSource, writer: BlockWriter, request: dict[str, Any]) -> None:
    """Seek to each segment and write it, cut to the exact sample by the time stamps."""
    for start_s, duration_s in request["segments"]:
        source.seek(start_s - PREROLL_S)
        first, last = round(start_s * SAMPLE_RATE), round((start_s + duration_s) * SAMPLE_RATE)
        position: int | None = None
        for frame in _converted(source, request["max_channels"]):
            if position is None:
                position = round(((frame.time or 0.0) - source.start_s) * SAMPLE_RATE)
            begin = max(first - position, 0)
            end = min(last - position, frame.samples)
            if begin < end:
                writer.samples(planes_of(frame, begin, end))
            position += frame.samples
            if position >= last:
                break
        writer.message(b"S")


def _converted(source: FrameSource, max_channels: int) -> Iterator["AudioFrame"]:
    converter = Converter(max_channels)
    for frame in source.frames():
        yield from converter.convert(frame)
    yield from converter.finish()


def serve_request(request: dict[str, Any], walls: dict[str, str]) -> None:
    """Serve one request inside the walls."""
    writer = BlockWriter(request["row_samples"])
    try:
        if request["task"] == "walls":
            writer.message(b"I", json.dumps(walls).encode())
        else:
            source = FrameSource()
            writer.message(b"I", json.dumps(source.claims()).encode())
            if request["task"] == "whole":
                decode_whole(source, writer, request)
            elif request["task"] == "head":
                decode_head(source)
            elif request["task"] == "segments":
                decode_segments(source, writer, request)
            elif request["task"] == "digest":
                writer.message(b"I", json.dumps(digest_packets(source)).encode())
            elif request["task"] == "labels":
                writer.message(b"I", json.dumps(labels(source), ensure_ascii=False).encode())
        writer.message(b".")
    except RefusedError as refusal:
        writer.message(b"E", json.dumps(refusal.args).encode())
    except MemoryError:
        writer.message(b"E", json.dumps(["unprocessable_audio", TOO_MUCH_MEMORY]).encode())
