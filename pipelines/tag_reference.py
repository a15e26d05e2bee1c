"""How probable the musicnn checkpoints find each tag in ordinary music.

A tag's mean probability over the evaluation set (8 patches of each of its 108 clips), the 35 real
recordings weighing as much as the 73 rendered ones; not below .01. Only the order of magnitude
matters: it tells a rare tag's .05 from a common tag's .05.
"""

# fmt: off
MTT_REFERENCE = {
    "guitar": 0.162, "classical": 0.116, "slow": 0.105, "techno": 0.161, "strings": 0.084,
    "drums": 0.137, "electronic": 0.148, "rock": 0.069, "fast": 0.115, "piano": 0.141,
    "ambient": 0.036, "beat": 0.111, "violin": 0.086, "vocal": 0.027, "synth": 0.100,
    "female": 0.021, "indian": 0.031, "opera": 0.010, "male": 0.015, "singing": 0.019,
    "vocals": 0.020, "no vocals": 0.060, "harpsichord": 0.011, "loud": 0.042, "quiet": 0.015,
    "flute": 0.033, "woman": 0.014, "male vocal": 0.014, "no vocal": 0.050, "pop": 0.038,
    "soft": 0.024, "sitar": 0.013, "solo": 0.039, "man": 0.010, "classic": 0.015, "choir": 0.012,
    "voice": 0.011, "new age": 0.021, "dance": 0.023, "male voice": 0.010, "female vocal": 0.011,
    "beats": 0.041, "harp": 0.010, "cello": 0.015, "no voice": 0.025, "weird": 0.021,
    "country": 0.029, "metal": 0.010, "female voice": 0.010, "choral": 0.010,
}

MSD_REFERENCE = {
    "rock": 0.090, "pop": 0.049, "alternative": 0.050, "indie": 0.077, "electronic": 0.182,
    "female vocalists": 0.051, "dance": 0.030, "00s": 0.013, "alternative rock": 0.016,
    "jazz": 0.121, "beautiful": 0.020, "metal": 0.043, "chillout": 0.057, "male vocalists": 0.010,
    "classic rock": 0.014, "soul": 0.015, "indie rock": 0.019, "Mellow": 0.017,
    "electronica": 0.057, "80s": 0.017, "folk": 0.065, "90s": 0.010, "chill": 0.016,
    "instrumental": 0.106, "punk": 0.012, "oldies": 0.015, "blues": 0.028, "hard rock": 0.016,
    "ambient": 0.075, "acoustic": 0.024, "experimental": 0.047, "female vocalist": 0.010,
    "guitar": 0.020, "Hip-Hop": 0.010, "70s": 0.010, "party": 0.010, "country": 0.042,
    "easy listening": 0.013, "sexy": 0.010, "catchy": 0.010, "funk": 0.013, "electro": 0.041,
    "heavy metal": 0.019, "Progressive rock": 0.028, "60s": 0.010, "rnb": 0.010, "indie pop": 0.016,
    "sad": 0.010, "House": 0.017, "happy": 0.010,
}
# fmt: on
