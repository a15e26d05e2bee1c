import hashlib
from dataclasses import replace

import numpy as np
import pytest

from models.fingerprint.agreement import agreement
from models.fingerprint.landmarks import Fingerprint
from models.fingerprint.sketch import (
    N_PARTS,
    N_VALUES,
    parts_likeness,
    sketch_keys,
    sketch_parts,
)
from serve_app.services.identify.answers import KEEP_MATCH_S, IdentifyCache
from serve_app.services.identify.identified import Identified


class Memory:
    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.ttls: set[float] = set()

    async def get(self, space: str, key: str) -> bytes | None:
        assert space == "provider"
        return self.values.get(key)

    async def put(self, space: str, key: str, value: bytes, ttl_s: float) -> None:
        assert space == "provider"
        self.values[key] = value
        self.ttls.add(ttl_s)


def clip(seed: int, n: int = 300) -> Fingerprint:
    rng = np.random.default_rng(seed)
    return Fingerprint(
        np.sort(rng.uniform(0, 430, n)).astype(np.float32),
        np.log2(rng.uniform(250, 4000, n)).astype(np.float32),
        rng.uniform(1, 6, n).astype(np.float32),
        430,
    )


def recoded(original: Fingerprint, kept: float = 0.9) -> Fingerprint:
    """Lose some landmarks, and shift the others a little and by 40 ms, as an encoder does."""
    rng = np.random.default_rng(0)
    stays = rng.random(len(original)) < kept
    n = int(stays.sum())
    return Fingerprint(
        (original.frames[stays] + 1.7 + rng.normal(0, 0.05, n)).astype(np.float32),
        (original.pitches[stays] + rng.normal(0, 2e-4, n)).astype(np.float32),
        original.prominences[stays],
        original.n_frames,
    )


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_sketches_of_copies_are_alike_and_of_others_are_not() -> None:
    mine = sketch_parts(clip(0))
    assert mine.dtype == np.uint32
    assert mine.shape == (N_PARTS, N_VALUES)
    assert parts_likeness(mine, sketch_parts(clip(0))) == 1
    assert parts_likeness(mine, sketch_parts(recoded(clip(0)))) > 0.3
    assert max(parts_likeness(mine, sketch_parts(clip(seed))) for seed in range(1, 40)) < 0.05


def test_clips_agree_that_hold_the_same_sound_at_the_same_place() -> None:
    mine, copy = clip(0), recoded(clip(0))
    assert agreement(mine, mine, 1.0) == 1
    assert agreement(mine, copy, 1.0) == agreement(copy, mine, 1.0) > 0.3
    assert max(agreement(mine, clip(seed), 1.0) for seed in range(1, 40)) < 0.01
    later, much_later = window(mine, 40, 430), window(mine, 60, 430)  # of 43 frames a second
    assert agreement(mine, later, 1.0) == agreement(later, mine, 1.0) > 0.5
    assert agreement(mine, much_later, 1.0) < 0.01
    assert agreement(mine, much_later, 2.0) > 0.5
    assert agreement(clip(0, 8), clip(0, 8), 1.0) == 0


def test_a_sketch_is_the_same_everywhere() -> None:
    """Replicas share a cache, so a sketch may not change between processes or releases."""
    hexed = hashlib.sha256(sketch_parts(clip(0)).astype("<u4").tobytes()).hexdigest()
    assert hexed[:16] == "731595ee11aaaaef"


@pytest.mark.parametrize("n", [0, 2, 8])
def test_too_little_to_compare_has_no_sketch(n: int) -> None:
    no_parts = sketch_parts(clip(0, n))
    assert len(no_parts) == 0
    assert sketch_keys(no_parts) == []
    assert parts_likeness(no_parts, no_parts) == 0


def answer(title: str) -> Identified:
    return Identified({"local": "match"}, title=title, source_service="local")


NOTHING = Identified({"local": "no_match"}, generation="1")


def cache_of(memory: Memory, generation: str = "1") -> IdentifyCache:
    return IdentifyCache(memory, lambda: generation)


async def test_the_same_bytes_and_a_copy_are_known() -> None:
    cache = cache_of(Memory())
    await cache.put(digest("wav"), clip(1), answer("one"))
    await cache.put(digest("other"), clip(2), answer("two"))
    known = replace(answer("one"), known_as=digest("wav"))
    assert await cache.by_bytes(digest("wav")) == known
    assert await cache.by_bytes(digest("mp3")) is None
    assert await cache.by_fingerprint(recoded(clip(1))) == known
    other = await cache.by_fingerprint(recoded(clip(2)))
    assert other is not None
    assert other.title == "two"
    assert await cache.by_fingerprint(clip(3)) is None


def window(whole: Fingerprint, begin: int, end: int) -> Fingerprint:
    """The clip between two frames."""
    inside = (whole.frames >= begin) & (whole.frames < end)
    return Fingerprint(
        whole.frames[inside] - begin, whole.pitches[inside], whole.prominences[inside], end - begin
    )


def joined(one: Fingerprint, other: Fingerprint) -> Fingerprint:
    """One clip followed by the other."""
    return Fingerprint(
        np.concatenate([one.frames, other.frames + one.n_frames]),
        np.concatenate([one.pitches, other.pitches]),
        np.concatenate([one.prominences, other.prominences]),
        one.n_frames + other.n_frames,
    )


async def test_what_overlaps_a_clip_or_shares_a_part_of_it_is_no_copy() -> None:
    whole, other = clip(1), clip(2)
    first = window(whole, 0, 300)
    cache = cache_of(Memory())
    await cache.put(digest("first"), first, answer("one"))
    assert await cache.by_fingerprint(first) is not None
    later, mixed = window(whole, 60, 360), joined(window(whole, 0, 200), window(other, 0, 100))
    for another in (later, mixed, window(whole, 0, 240), window(whole, 0, 400)):
        assert agreement(first, another, 2.0) > 0.2
        assert await cache.by_fingerprint(another) is None


async def test_of_two_copies_the_more_alike_answers() -> None:
    cache = cache_of(Memory())
    await cache.put(digest("far"), recoded(clip(1), 0.7), answer("far"))
    await cache.put(digest("near"), clip(1), answer("near"))
    await cache.put(digest("far again"), recoded(clip(1), 0.6), answer("far again"))
    found = await cache.by_fingerprint(clip(1))
    assert found is not None
    assert found.title == "near"


async def test_silence_is_kept_under_its_bytes_only() -> None:
    memory = Memory()
    cache = cache_of(memory)
    await cache.put(digest("silence"), clip(0, 0), NOTHING)
    assert await cache.by_bytes(digest("silence")) is not None
    assert await cache.by_fingerprint(clip(0, 0)) is None
    assert len(memory.values) == 1


async def test_everything_expires_together_and_a_lost_answer_is_a_miss() -> None:
    memory = Memory()
    cache = cache_of(memory)
    await cache.put(digest("a"), clip(1), answer("one"))
    assert memory.ttls == {KEEP_MATCH_S}
    for key in [key for key in memory.values if key.startswith("identify:answer:")]:
        del memory.values[key]
    assert await cache.by_fingerprint(clip(1)) is None


async def test_that_nothing_matched_ends_with_the_index() -> None:
    memory = Memory()
    for name, seed, found in (("known", 1, answer("one")), ("unknown", 2, NOTHING)):
        await cache_of(memory).put(digest(name), clip(seed), found)
    assert await cache_of(memory).by_bytes(digest("unknown")) is not None
    later = cache_of(memory, generation="2")
    assert await later.by_bytes(digest("unknown")) is None
    assert await later.by_fingerprint(clip(2)) is None
    assert await later.by_bytes(digest("known")) is not None


async def test_who_was_told_is_known_for_this_answer_only() -> None:
    memory = Memory()
    cache = cache_of(memory)
    unmatched = replace(NOTHING, known_as=digest("a"))
    assert not await cache.was_told("ann", unmatched)
    await cache.note_told("ann", digest("copy"), unmatched)
    assert await cache.was_told("ann", unmatched)
    assert await cache.was_told("ann", replace(unmatched, known_as=digest("copy")))
    assert not await cache.was_told("bob", unmatched)
    assert not await cache.was_told("ann", replace(answer("one"), known_as=digest("a")))
    assert not await cache.was_told("ann", replace(unmatched, generation="2"))
