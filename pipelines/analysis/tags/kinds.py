"""What a tag names: a mood, a genre, an instrument, a voice and so on."""

from typing import Literal

TagKind = Literal["genre", "mood", "instrument", "voice", "era", "sound"]

_OTHERS: dict[TagKind, str] = {
    "mood": (
        "angry, beautiful, catchy, chill, exciting, funny, happy, mellow, party, sad, scary, sexy, "
        "tender, weird"
    ),
    "instrument": (
        "accordion, acoustic guitar, bagpipes, banjo, bass guitar, brass, cello, clarinet, "
        "double bass, drum machine, drums, electric guitar, electric piano, flute, guitar, "
        "harmonica, harp, harpsichord, mandolin, marimba, orchestra, organ, percussion, piano, "
        "saxophone, scratching, sitar, steel guitar, strings, synth, tabla, trombone, trumpet, "
        "ukulele, vibraphone, violin"
    ),
    "voice": (
        "a cappella, beatboxing, chant, choir, conversation, female speech, female vocals, "
        "instrumental, male speech, male vocals, narration, rap, speech, vocals"
    ),
    "era": "60s, 70s, 80s, 90s, 00s, oldies",
    "sound": "acoustic, applause, beats, cheering, crowd, fast, loud, quiet, slow, soft, solo",
}
_KINDS: dict[str, TagKind] = {
    name: kind for kind, names in _OTHERS.items() for name in names.split(", ")
}


def kind_of(tag: str) -> TagKind:
    """Return what a tag names; a tag of no other kind is a genre.

    Args:
        tag: Under its common name, see `pipelines.analysis.tags.tagging.merge_tags`.
    """
    return _KINDS.get(tag, "genre")
