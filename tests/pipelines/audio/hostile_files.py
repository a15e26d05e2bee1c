"""Hostile files of every accepted format: cut off, bits flipped, false headers. Seeded."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.data.audio_files import (
    ENCODINGS,
    MUSEPACK,
    click_track,
    silent_ape,
    write_dff,
    write_dsf,
)

DURATION_S = 1.5
HEADER_BYTES = 256
EXTREMES = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\1")


@dataclass(frozen=True, slots=True)
class HostileFile:
    """The bytes of a file, and how they were made."""

    name: str
    content: bytes


def cut_off(content: bytearray, rng: random.Random) -> bytes:
    return bytes(content[: rng.randrange(1, len(content))])


def flip_bits(content: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 10, 200))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def lie_in_header(content: bytearray, rng: random.Random) -> bytes:
    """Replace four bytes at a time with extreme numbers, and single bytes with noise."""
    reach = min(HEADER_BYTES, len(content) - 4)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(4, reach)
        content[at : at + 4] = rng.choice(EXTREMES)
    for _ in range(rng.randrange(4)):
        content[rng.randrange(reach)] = rng.randrange(256)
    return bytes(content)


def repeat_inside(content: bytearray, rng: random.Random) -> bytes:
    """Repeat a stretch somewhere else: nested boxes, two headers, loops."""
    start, size = rng.randrange(len(content)), rng.randrange(1, 4_000)
    at = rng.randrange(len(content))
    return bytes(content[:at] + content[start : start + size] * rng.randrange(1, 9) + content[at:])


def fill_with_noise(content: bytearray, rng: random.Random) -> bytes:
    start = rng.randrange(len(content))
    noise = rng.randbytes(min(len(content) - start, rng.randrange(16, 20_000)))
    content[start : start + len(noise)] = noise
    return bytes(content)


MUTATIONS: tuple[Callable[[bytearray, random.Random], bytes], ...] = (
    cut_off,
    flip_bits,
    lie_in_header,
    repeat_inside,
    fill_with_noise,
)


def hostile_files(folder: Path, count: int, seed: int) -> Iterator[HostileFile]:
    """Yield ``count`` files, each format in turn, changed in one or two of these ways."""
    originals = {
        f"{encoding.name}-{encoding.codec}": encoding.write(
            folder / "original", DURATION_S
        ).read_bytes()
        for encoding in ENCODINGS
    }
    originals["APE"] = silent_ape(folder / "original", 3).read_bytes()
    originals["Musepack"] = MUSEPACK.read_bytes()
    for name, write in (("DSF", write_dsf), ("DFF", write_dff)):
        originals[name] = write(folder / "original", click_track(120, DURATION_S)).read_bytes()
    names = list(originals)
    for i in range(count):
        rng = random.Random(f"{seed}-{i}")
        name = names[i % len(names)]
        ways = rng.sample(MUTATIONS, rng.choice((1, 1, 2)))
        content = originals[name]
        for way in ways:
            content = way(bytearray(content), rng)
        yield HostileFile(f"{i} {name} {'+'.join(way.__name__ for way in ways)}", content)
