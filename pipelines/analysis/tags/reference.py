"""How probable the musicnn checkpoints find each tag in ordinary music.

A tag's mean probability over the evaluation set (6 patches of each of its 108 clips, at -14 LUFS),
with the 35 real recordings weighing as much as the 73 rendered ones; at least .01. Only the order
of magnitude matters: it distinguishes a rare tag's .05 from a common tag's .05.
"""

# fmt: off
MTT_REFERENCE = {
    "guitar": 0.157, "classical": 0.085, "slow": 0.090, "techno": 0.173, "strings": 0.068,
    "drums": 0.138, "electronic": 0.151, "rock": 0.072, "fast": 0.134, "piano": 0.154,
    "ambient": 0.033, "beat": 0.115, "violin": 0.074, "vocal": 0.026, "synth": 0.104,
    "female": 0.023, "indian": 0.027, "opera": 0.010, "male": 0.013, "singing": 0.018,
    "vocals": 0.020, "no vocals": 0.062, "harpsichord": 0.010, "loud": 0.054, "quiet": 0.010,
    "flute": 0.027, "woman": 0.016, "male vocal": 0.012, "no vocal": 0.050, "pop": 0.043,
    "soft": 0.013, "sitar": 0.011, "solo": 0.039, "man": 0.010, "classic": 0.010, "choir": 0.010,
    "voice": 0.010, "new age": 0.022, "dance": 0.026, "male voice": 0.010, "female vocal": 0.012,
    "beats": 0.041, "harp": 0.010, "cello": 0.013, "no voice": 0.025, "weird": 0.021,
    "country": 0.032, "metal": 0.010, "female voice": 0.010, "choral": 0.010,
}

MSD_REFERENCE = {
    "rock": 0.081, "pop": 0.048, "alternative": 0.052, "indie": 0.102, "electronic": 0.211,
    "female vocalists": 0.053, "dance": 0.031, "00s": 0.016, "alternative rock": 0.015,
    "jazz": 0.104, "beautiful": 0.022, "metal": 0.038, "chillout": 0.066, "male vocalists": 0.010,
    "classic rock": 0.010, "soul": 0.012, "indie rock": 0.024, "Mellow": 0.019,
    "electronica": 0.065, "80s": 0.010, "folk": 0.066, "90s": 0.010, "chill": 0.019,
    "instrumental": 0.095, "punk": 0.011, "oldies": 0.010, "blues": 0.024, "hard rock": 0.015,
    "ambient": 0.075, "acoustic": 0.026, "experimental": 0.051, "female vocalist": 0.010,
    "guitar": 0.018, "Hip-Hop": 0.010, "70s": 0.010, "party": 0.010, "country": 0.033,
    "easy listening": 0.010, "sexy": 0.010, "catchy": 0.010, "funk": 0.014, "electro": 0.048,
    "heavy metal": 0.018, "Progressive rock": 0.021, "60s": 0.010, "rnb": 0.010, "indie pop": 0.022,
    "sad": 0.010, "House": 0.018, "happy": 0.010,
}
# fmt: on
