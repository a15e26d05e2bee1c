"""Write the demo catalog: invented tracks, public-domain works, and the bundled demo track.

Run ``PYTHONPATH=. python tests/data/make_demo_catalog.py`` from the repository root to write
``serve_app/data/demo_catalog.parquet``. All identifiers are invented.
"""

from pathlib import Path

from serve_app.domain.identity import TrackIdentity
from serve_app.providers.catalog.build import write_parquet

PATH = Path("serve_app/data/demo_catalog.parquet")

BEAT_S = 60 / 124
DEMO_BEATS = tuple(round(0.25 + n * BEAT_S, 4) for n in range(64))
DEMO = TrackIdentity(
    artist="The afa Demo Band",
    title="Demo in A minor",
    mbid="afa00000-0000-4000-8000-000000000001",
    isrc="QZAFA2600001",
    spotify_id="0AfaDemoTrack000000001",
    apple_id="1600000124",
    deezer_id="990000124",
    youtube_id="AfaDemoTrk0",
    album="Fixtures",
    year=2026,
    label="Localhost Records",
    genres=("electronic",),
    duration_s=31.718,
    audio_url="demo.mp3",
    tempo=124.0,
    key=9,
    mode=0,
    beats=DEMO_BEATS,
    downbeats=DEMO_BEATS[::4],
    is_verified=True,
)
STUB = TrackIdentity(
    artist="The Stub Quartet",
    title="Paper Lanterns",
    mbid="5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e4f",
    isrc="QZTST2100001",
    spotify_id="1StUbTrAcK0000000000Aa",
    apple_id="1600000001",
    deezer_id="990000001",
    youtube_id="StubVideo0A",
    album="Fixtures",
    year=2021,
    label="Localhost Records",
    genres=("electronic",),
    duration_s=213.0,
)
STUB_LIVE = TrackIdentity(
    artist="The Stub Quartet",
    title="Paper Lanterns (Live)",
    mbid="5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e50",
    isrc="QZTST2200007",
    deezer_id="990000002",
    album="Fixtures Live",
    year=2022,
    label="Localhost Records",
    duration_s=247.0,
)
WITHOUT_ISRC = TrackIdentity(
    artist="The Stub Quartet",
    title="Unregistered",
    mbid="5f0d3c3e-8a6b-4c8e-9a51-0c7a1b2d3e51",
    youtube_id="StubVideo08",
    duration_s=95.0,
)
# One number, two tracks: the bare digits are ambiguous.
APPLE_TWIN = TrackIdentity(
    artist="Ada Loopback", title="Twin Ports", apple_id="3135556", isrc="QZTST2300010"
)
DEEZER_TWIN = TrackIdentity(
    artist="The Null Pointers", title="Segment Fault", deezer_id="3135556", isrc="QZTST2300011"
)
INVENTED = [
    ("Ada Loopback", "Handshake", "Ports", 2019),
    ("Ada Loopback", "Half-Open", "Ports", 2019),
    ("Ada Loopback", "Keep-Alive", "Ports", 2019),
    ("The Null Pointers", "Heap of Trouble", "Core Dump", 2016),
    ("The Null Pointers", "Stack Overflowing", "Core Dump", 2016),
    ("The Null Pointers feat. Ada Loopback", "Use After Free", "Core Dump", 2016),
    ("Café Réseau", "Après la Pluie", "Été", 2018),
    ("Café Réseau", "L'heure bleue", "Été", 2018),
    ("Björk Påse", "Smörgåsbord", "Norr", 2020),
    ("東京ループ", "夜の電車", "環状線", 2021),
    ("Cron & the Daemons", "Every Five Minutes", "At Midnight", 2014),
    ("Cron & the Daemons", "No Such Job", "At Midnight", 2014),
]
PUBLIC_DOMAIN = [
    ("Scott Joplin", "Maple Leaf Rag", 1899),
    ("Scott Joplin", "The Entertainer", 1902),
    ("Johann Sebastian Bach", "Toccata and Fugue in D minor, BWV 565", 1833),
    ("Johann Sebastian Bach", "Air on the G String", 1871),
    ("Ludwig van Beethoven", "Für Elise", 1867),
    ("Ludwig van Beethoven", "Moonlight Sonata", 1802),
    ("Wolfgang Amadeus Mozart", "Rondo alla Turca", 1784),
    ("Frédéric Chopin", "Nocturne in E-flat major, Op. 9 No. 2", 1832),
    ("Erik Satie", "Gymnopédie No. 1", 1888),
    ("Claude Debussy", "Clair de lune", 1905),
    ("Edvard Grieg", "In the Hall of the Mountain King", 1875),
    ("Antonio Vivaldi", "La primavera", 1725),
]


def identities() -> list[TrackIdentity]:
    """Every row of the demo catalog."""
    rows = [DEMO, STUB, STUB_LIVE, WITHOUT_ISRC, APPLE_TWIN, DEEZER_TWIN]
    rows += [
        TrackIdentity(
            artist=artist,
            title=title,
            mbid=f"afa00000-0000-4000-8000-{1000 + n:012d}",
            isrc=f"QZTST{year % 100:02d}{500 + n:05d}",
            spotify_id=f"2Invented{n:013d}",
            deezer_id=str(990_001_000 + n),
            apple_id=str(1_600_001_000 + n),
            album=album,
            year=year,
            label="Localhost Records",
        )
        for n, (artist, title, album, year) in enumerate(INVENTED)
    ]
    rows += [
        TrackIdentity(artist=artist, title=title, year=year, genres=("classical",))
        for artist, title, year in PUBLIC_DOMAIN
    ]
    return rows


if __name__ == "__main__":
    write_parquet(identities(), PATH)
