"""What the fields of several shapes mean, in the words of the reference; each text once."""

TEMPO = "Beats a minute (BPM), 0 when there is no beat; half or double of it may be felt as well."
TEMPO_CONFIDENCE = (
    "How regular and clear the beats are, 0 to 1. Below .5, check whether half or double is meant."
)
KEY_CONFIDENCE = "How much better this key fits the notes than the next best, 0 to 1."
LOUDNESS = (
    "Integrated loudness, LUFS (ITU-R BS.1770-4): -70 silence, about -23 broadcast, -14 streaming, "
    "-8 loud pop."
)
DURATION_MS = "Length of the decoded audio in milliseconds."
ATTRIBUTE = {
    "energy": "How intense it sounds: low is calm, high is fast, dense and loud.",
    "danceability": "How well it suits dancing, by the steadiness and stress of its beat.",
    "valence": "How positive it sounds: low is sad or angry, high is happy.",
    "acousticness": "How likely the instruments are acoustic, not electric or electronic.",
    "instrumentalness": "How likely there are no vocals.",
    "speechiness": "How much of it is spoken words.",
    "liveness": "How likely it was recorded before an audience.",
}
"""Estimated by a network from the sound alone; the scale stands with the field."""

ATTRIBUTE_CONFIDENCE = (
    "Attribute to how likely it repeats, 0 to 1: that another part of the track, or the track as "
    "MP3, faster, slower or equalised, gets a value within 10 of this one. Not how right it is. "
    "Empty where it is not known."
)
PERCENT = "0 to 100. "
UNIT = "0 to 1. "
META = "How the request was served, and what it cost."
MODELS = (
    "Role to id of the checkpoint that made it; `mood_tags` are also of `embedding`, where its "
    "networks tell tags."
)
ARTIST = "Name of the artist; empty when unknown."
TITLE = "Title of the track; empty when unknown."
IDS = {
    "mbid": "MusicBrainz recording ID.",
    "isrc": "International Standard Recording Code.",
    "spotify_id": "Spotify track ID.",
    "apple_id": "Apple Music song ID.",
    "deezer_id": "Deezer track ID.",
    "youtube_id": "YouTube video ID.",
}
