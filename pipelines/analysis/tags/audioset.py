"""The tags of AudioSet that say something about music, by the index of the network's output.

References:
    Gemmeke et al., Audio Set: An ontology and human-labeled dataset for audio events (ICASSP 2017);
    its ``class_labels_indices.csv`` gives the indices.
"""

N_CLASSES = 527

# fmt: off
AUDIOSET_TAGS = {
    0: "speech", 1: "male speech", 2: "female speech", 4: "conversation", 5: "narration",
    27: "singing", 28: "choir", 30: "chant", 32: "male vocals", 33: "female vocals", 36: "rap",
    66: "cheering", 67: "applause", 69: "crowd", 140: "guitar", 141: "electric guitar",
    142: "bass guitar", 143: "acoustic guitar", 144: "steel guitar", 147: "banjo", 148: "sitar",
    149: "mandolin", 151: "ukulele", 153: "piano", 154: "electric piano", 155: "organ",
    158: "synth", 160: "harpsichord", 161: "percussion", 162: "drums", 163: "drum machine",
    170: "tabla", 180: "marimba", 182: "vibraphone", 184: "orchestra", 185: "brass", 187: "trumpet",
    188: "trombone", 190: "strings", 191: "violin", 193: "cello", 194: "double bass", 196: "flute",
    197: "saxophone", 198: "clarinet", 199: "harp", 208: "harmonica", 209: "accordion",
    210: "bagpipes", 215: "scratching", 216: "pop", 217: "hip-hop", 218: "beatboxing", 219: "rock",
    220: "heavy metal", 221: "punk", 222: "grunge", 223: "progressive rock", 224: "rock and roll",
    225: "psychedelic rock", 226: "r&b", 227: "soul", 228: "reggae", 229: "country", 230: "swing",
    231: "bluegrass", 232: "funk", 233: "folk", 234: "middle eastern", 235: "jazz", 236: "disco",
    237: "classical", 238: "opera", 239: "electronic", 240: "house", 241: "techno", 242: "dubstep",
    243: "drum and bass", 244: "electronica", 245: "edm", 246: "ambient", 247: "trance",
    248: "latin", 249: "salsa", 250: "flamenco", 251: "blues", 252: "children", 253: "new age",
    255: "a cappella", 257: "afrobeat", 258: "christian", 259: "gospel", 261: "carnatic",
    262: "bollywood", 263: "ska", 264: "traditional", 270: "soundtrack", 271: "lullaby",
    272: "video game", 273: "christmas", 274: "dance", 276: "happy", 277: "funny", 278: "sad",
    279: "tender", 280: "exciting", 281: "angry", 282: "scary",
}
# fmt: on
"""Index → the name that the other vocabularies give it."""

MOOD_TAGS = ("happy", "funny", "sad", "tender", "exciting", "angry", "scary")
"""The moods: rare labels, to which the networks give low probabilities even when they are right."""
