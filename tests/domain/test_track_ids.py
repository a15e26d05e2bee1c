import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from serve_app.domain.track_ids import (
    AmbiguousTrackId,
    InvalidTrackIdError,
    Platform,
    TrackId,
    parse_track_id,
)

SPOTIFY, MBID, ISRC = (
    "1StUbTrAcK0000000000Aa",
    "5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e4f",
    "QZTST2100001",
)
APPLE, DEEZER, YOUTUBE = "1600000001", "990000001", "StubVideo0A"
LIBRARY = "trk_01m81x92bfbr0zr3xgyvbphvgb"

FORMS = [
    (
        Platform.SPOTIFY,
        SPOTIFY,
        None,
        [
            SPOTIFY,
            f"spotify:{SPOTIFY}",
            f"Spotify:{SPOTIFY}",
            f"spotify:track:{SPOTIFY}",
            f"https://open.spotify.com/track/{SPOTIFY}",
            f"open.spotify.com/track/{SPOTIFY}?si=a/b",
            f"https://open.spotify.com/intl-pt-BR/track/{SPOTIFY}",
            f"HTTPS://Open.Spotify.com/track/{SPOTIFY}",
            f"https://open.spotify.com/intl-de/track/{SPOTIFY}#x",
            f"http://play.spotify.com/track/{SPOTIFY}/",
            f"https://open.spotify.com/embed/track/{SPOTIFY}",
            f"afa:track:{SPOTIFY}",
            f"afa:{SPOTIFY}",
            f"afa:track:spotify:track:{SPOTIFY}",
            f"  {SPOTIFY}\n",
        ],
    ),
    (
        Platform.MBID,
        MBID,
        None,
        [
            MBID,
            MBID.upper(),
            MBID.replace("-", ""),
            f"mbid:{MBID.replace('-', '').upper()}",
            f"mbid:{MBID}",
            f"MusicBrainz:{MBID}",
            f"mb:{MBID}",
            f"https://musicbrainz.org/recording/{MBID}",
            f"beta.musicbrainz.org/recording/{MBID}/",
            f"https://www.musicbrainz.org/recording/{MBID}?x=1",
        ],
    ),
    (
        Platform.ISRC,
        ISRC,
        None,
        [
            ISRC,
            ISRC.lower(),
            "QZ-TST-21-00001",
            "isrc:QZTST2100001",
            "ISRC QZTST2100001",
            "ISRC:QZ-TST-21-00001",
            "isrc:ISRC QZ TST 21 00001",
            "ISRCQZTST2100001",
        ],
    ),
    (
        Platform.APPLE,
        APPLE,
        None,
        [
            f"apple:{APPLE}",
            f"apple_music:{APPLE}",
            f"AppleMusic:{APPLE}",
            f"itunes:{APPLE}",
            f"https://music.apple.com/song/{APPLE}",
            f"https://music.apple.com/album/1600000000?i={APPLE}",
            f"https://embed.music.apple.com/song/{APPLE}",
            f"apple:00{APPLE}",
        ],
    ),
    (
        Platform.APPLE,
        APPLE,
        "gb",
        [
            f"https://music.apple.com/gb/album/paper-lanterns/1600000000?i={APPLE}&uo=4",
            f"https://geo.music.apple.com/GB/album/p/id1600000000?at=1&i={APPLE}#a",
            f"https://itunes.apple.com/gb/album/p/id1600000000?i={APPLE}",
            f"https://music.apple.com/gb/album/caf\u00e9/1600000000?i={APPLE}",
            f"music.apple.com/gb/song/paper-lanterns/{APPLE}?l=en",
        ],
    ),
    (
        Platform.DEEZER,
        DEEZER,
        None,
        [
            f"deezer:{DEEZER}",
            f"deezer:track:{DEEZER}",
            f"deezer_id:{DEEZER}",
            f"https://www.deezer.com/track/{DEEZER}",
            f"https://deezer.com/fr/track/{DEEZER}?utm_source=deezer",
            f"www.deezer.com/pt-br/track/{DEEZER}",
        ],
    ),
    (
        Platform.YOUTUBE,
        YOUTUBE,
        None,
        [
            YOUTUBE,
            f"youtube:{YOUTUBE}",
            f"yt:{YOUTUBE}",
            f"YouTubeMusic:{YOUTUBE}",
            f"youtube_music:{YOUTUBE}",
            f"youtube-music:{YOUTUBE}",
            f"https://www.youtube.com/watch?v={YOUTUBE}",
            f"https://youtu.be/{YOUTUBE}?t=3",
            f"https://music.youtube.com/watch?list=RD&v={YOUTUBE}&feature=share",
            f"m.youtube.com/shorts/{YOUTUBE}",
            f"https://www.youtube-nocookie.com/embed/{YOUTUBE}",
            f"https://youtube.com/live/{YOUTUBE}",
        ],
    ),
    (Platform.ACOUSTID, MBID, None, [f"acoustid:{MBID.upper()}"]),
    (Platform.LIBRARY, LIBRARY, None, [LIBRARY, LIBRARY.removeprefix("trk_")]),
]


@pytest.mark.parametrize(
    ("expected", "text"),
    [(TrackId(p, v, c), text) for p, v, c, texts in FORMS for text in texts],
)
def test_every_form_is_understood(expected: TrackId, text: str) -> None:
    assert parse_track_id(text) == expected


@pytest.mark.parametrize("text", ["3135556", "12345", "12345678901", "123456789012", "003135556"])
def test_bare_digits_are_ambiguous_even_where_they_look_like_youtube(text: str) -> None:
    parsed = parse_track_id(text)
    assert parsed == AmbiguousTrackId(text.lstrip("0"))
    assert isinstance(parsed, AmbiguousTrackId)
    assert (str(parsed.apple), str(parsed.deezer)) == (f"apple:{parsed}", f"deezer:{parsed}")


def test_digits_too_few_for_apple_are_deezer() -> None:
    assert parse_track_id("1234") == TrackId(Platform.DEEZER, "1234")


def test_an_isrc_of_iceland_is_not_mistaken_for_the_word() -> None:
    assert parse_track_id("ISRC12345678") == TrackId(Platform.ISRC, "ISRC12345678")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "abc",
        "deezer:-5",
        "-5",
        "0",
        "00000",
        "deezer:0",
        "apple:1234",
        f"mbid:{SPOTIFY}",
        f"spotify:{MBID}",
        f"spotify:album:{SPOTIFY}",
        f"tidal:{APPLE}",
        "1234567890123",
        "spotify:",
        f"https://open.spotify.com/album/{SPOTIFY}",
        "https://example.org/track/1",
        f"https://evil.org/?u=https://open.spotify.com/track/{SPOTIFY}",
        f"https://open.spotify.com.evil.org/track/{SPOTIFY}",
        f"javascript://open.spotify.com/track/{SPOTIFY}",
        f"https://musicbrainz.org/release/{MBID}",
        f"https://musicbrainz.org/track/{MBID}",
        "https://music.apple.com/us/album/paper-lanterns/1600000000",
        "https://www.deezer.com/album/1",
        f"{SPOTIFY}\x00",
        f"{SPOTIFY[:10]}\n{SPOTIFY[10:]}",
        f"afa:track:afa:track:{SPOTIFY}",
        "afa:track:",
        "\u0661\u0662\u0663\u0664\u0665",
        "\u00df" + "TST2100001",
        "QZTST21000\u0660\u0661",
        "x" * 3000,
        f"{MBID}\u212a",
        "job_01HYZ3K8A2F4PQRS7T9V1XW",
    ],
)
def test_what_is_no_track_id_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(InvalidTrackIdError, match=r"spotify:.*mbid:.*isrc:.*apple:.*deezer:") as e:
        parse_track_id(text)
    assert len(str(e.value)) < 700


@pytest.mark.parametrize(
    "text", ["https://spotify.link/abc", "link.deezer.com/s/1", "https://deezer.page.link/x"]
)
def test_short_links_say_what_to_do(text: str) -> None:
    with pytest.raises(InvalidTrackIdError, match="full address"):
        parse_track_id(text)


ISRCS = re.compile(r"[A-Z]{2}[A-Z0-9]{3}[0-9]{7}", re.ASCII)
VALUES = {
    Platform.SPOTIFY: st.from_regex(re.compile(r"[0-7][0-9A-Za-z]{21}", re.ASCII), fullmatch=True),
    Platform.MBID: st.uuids().map(str),
    Platform.ISRC: st.from_regex(
        re.compile(r"[A-Z]{2}[A-Z0-9]{3}[0-9]{7}", re.ASCII), fullmatch=True
    ),
    Platform.APPLE: st.integers(10**4, 10**12 - 1).map(str),
    Platform.DEEZER: st.integers(1, 10**12 - 1).map(str),
    Platform.YOUTUBE: st.from_regex(
        re.compile(r"[0-9A-Za-z_-]{10}[048AEIMQUYcgkosw]", re.ASCII), fullmatch=True
    ),
    Platform.ACOUSTID: st.uuids().map(str),
}
track_ids = st.one_of(*(st.builds(TrackId, st.just(p), value) for p, value in VALUES.items()))


@given(track_ids)
def test_the_canonical_form_parses_to_itself(track_id: TrackId) -> None:
    assert parse_track_id(str(track_id)) == track_id
    assert parse_track_id(f"afa:track:{track_id}") == track_id


@given(track_ids)
def test_a_bare_id_is_its_platform_unless_it_cannot_tell(track_id: TrackId) -> None:
    assume(set(track_id.value) != {"0"})
    parsed = parse_track_id(track_id.value)
    if isinstance(parsed, AmbiguousTrackId):
        assert track_id.value.isdigit()
    elif track_id.platform is Platform.ACOUSTID:
        assert parsed.platform is Platform.MBID
    elif not track_id.value.isdigit():
        assert parsed == track_id


@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        parsed = parse_track_id(text)
    except InvalidTrackIdError:
        return
    assert parsed.value.isascii()
    assert parse_track_id(str(parsed)) in (parsed, TrackId(Platform.APPLE, parsed.value))
