"""`streaming_extractor_music AUDIO JSON`: write features of a file, like Essentia's command.

The document has what afa measures, low-level and high-level together, under Essentia's names.

References:
    https://github.com/MTG/essentia, src/examples/streaming_extractor_music.cpp: its arguments and
    statuses.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

import afa
from serve_app.providers.tags.identity import TAGS, identity_of
from serve_app.providers.tags.reader import read_tags
from serve_app.services.export.acousticbrainz import high_level, low_level

USAGE = (
    "Error: wrong number of arguments\n"
    "Usage: streaming_extractor_music input_audiofile output_textfile [profile]"
)
NO_PROFILE = "profiles are ignored: afa analyses the whole file, and writes JSON"


def main() -> None:
    """Analyse the first file on the command line, and write the second."""
    if len(sys.argv) not in (3, 4):
        typer.echo(USAGE)
        sys.exit(1)
    if len(sys.argv) == 4:
        typer.echo(NO_PROFILE, err=True)
    audio, output = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        output.write_text(json.dumps(document_of(audio)), encoding="utf-8")
    except (afa.AfaError, OSError) as error:
        typer.echo(str(error), err=True)
        sys.exit(1)


def document_of(audio: Path) -> dict[str, Any]:
    """Analyse a file, and describe it with its tags; raises errors of the steps."""
    heard = afa.analyze(audio).record
    tagged = identity_of(read_tags(audio), audio)
    guessed: dict[str, Any] = {name: "" for name, said in tagged.sources.items() if said != TAGS}
    identity = replace(tagged.identity, **guessed)
    document = low_level(identity, heard) | high_level(identity, heard)
    document["metadata"]["tags"]["file_name"] = audio.name
    return document
