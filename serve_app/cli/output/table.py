"""Features as a table for people."""

from rich.table import Table
from rich.text import Text

from serve_app.api.wire.features import AnalysisFeatures

TAGS_SHOWN = 6


def features_table(features: AnalysisFeatures, title: str) -> Table:
    """Lay out the features of one track."""
    table = Table(title=title, title_justify="left", show_header=False, min_width=60)
    table.add_column(style="bold")
    table.add_column()
    key = f"{features.key} {features.mode} ({features.camelot})" if features.key else "none"
    rows = {
        "duration": f"{features.duration_ms / 1000:.1f} s",
        "tempo": f"{features.tempo:.2f} BPM (confidence {features.tempo_confidence:.2f})",
        "or": ", ".join(
            f"{other.tempo:.2f} BPM ({other.score:.2f})" for other in features.tempo_alternatives
        ),
        "time signature": f"{features.time_signature}/4",
        "beats, downbeats": f"{len(features.beats)}, {len(features.downbeats)}",
        "key": f"{key} (confidence {features.key_confidence:.2f})",
        "loudness": f"{features.loudness:.1f} LUFS, range {features.loudness_range:.1f} LU, "
        f"true peak {features.true_peak:.1f} dBTP",
        "mix in, mix out": f"{features.mix_in:.1f} s, {features.mix_out:.1f} s",
    }
    for name, text in rows.items():
        table.add_row(name, text)
    for name in (
        "energy",
        "danceability",
        "happiness",
        "acousticness",
        "instrumentalness",
        "speechiness",
        "liveness",
    ):
        value: int = getattr(features, name)
        confidence = features.attribute_confidence.get(name)
        cell = Text(f"{value:3d}  {'█' * round(value / 5):<20}")
        if confidence is not None:
            cell.append(f"  repeats {confidence:.2f}", style="dim")
        cell.rstrip()
        table.add_row(name, cell)
    tags = ", ".join(f"{tag.tag} {tag.score:.2f}" for tag in features.mood_tags[:TAGS_SHOWN])
    table.add_row("mood tags", tags or "none")
    if features.embedding is not None:
        head = ", ".join(f"{x:.2g}" for x in features.embedding[:4])
        table.add_row("embedding", f"{len(features.embedding)} floats: {head}, …")
    for role, model_id in features.models.items():
        table.add_row(f"model: {role}", model_id, style="dim")
    return table
