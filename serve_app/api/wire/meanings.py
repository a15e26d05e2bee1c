"""What fields of several shapes mean, in the words of the reference; each text once."""

TEMPO = "Beats per minute (BPM), 0 if there is no beat; half or double of it may feel right too."
TEMPO_CONFIDENCE = (
    "How regular and clear the beats are, 0 to 1. Below .5, check if half or double is right."
)
KEY_CONFIDENCE = "How likely this key is among all 24, 0 to 1."
LOUDNESS = (
    "Integrated loudness in LUFS (ITU-R BS.1770-4): -70 is silence; about -23 is usual in "
    "broadcasting, -14 in streaming, -8 in loud pop."
)
DURATION_MS = "Length of the decoded audio in milliseconds."
ATTRIBUTE = {
    "energy": "How intense it sounds: low is calm, high is fast, dense and loud.",
    "danceability": "How suitable it is for dancing, by how steady and strong its beat is.",
    "valence": "How positive it sounds: low is sad or angry, high is happy.",
    "acousticness": "How likely the instruments are acoustic, not electric or electronic.",
    "instrumentalness": "How likely it is to have no vocals.",
    "speechiness": "How much of it is speech.",
    "liveness": "How likely it was recorded in front of an audience.",
}
"""Estimated by a network from the sound alone; the field's description has the scale."""

ATTRIBUTE_CONFIDENCE = (
    "For each attribute, how likely its value repeats, 0 to 1: that another part of the track, or "
    "the track as MP3, faster, slower or equalised, gets a value within 10 of this one. This is "
    "not how right the value is. Empty if it is not known."
)
PERCENT = "0 to 100. "
UNIT = "0 to 1. "
META = "How the request was served, and what it cost."
MODELS = (
    "For each role, the id of the checkpoint that was used; `mood_tags` also come from "
    "`embedding` if its networks recognise tags."
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
