"""How certainly a clip is of a track: by votes, by evidence, and by likeness of changes."""

import math

MOST_SUPPORT = 12.0
"""Deviations; more of them mean no more."""
USUAL_SUPPORT = 5.0
"""Deviations of evidence that a right candidate, certain by votes, nearly always has."""
SUPPORT_WEIGHT = 1.06
SHORTEST_S = 4.9
"""Length of the clips used to fit, in whole frames; a shorter clip counts as this long."""
TRACKS_WEIGHT = 0.5


def votes_confidence(votes: int, spans: int, n_tracks: int, support: float | None = None) -> int:
    """Return the probability from votes, in percent.

    A logistic regression, fitted to 92 tracks against indexes of 26 and 96 real ones (-9.6, 4.5,
    4.1), and shifted towards caution. The odds fall in proportion to the number of tracks: among 12
    to 96 real ones, wrong candidates of four votes and four spans became 8.0 times as frequent.
    If the evidence lacks its usual support, the shortfall is deducted: tracks may share a figure.
    """
    odds = -12.1 + 4.5 * math.log1p(votes) + 4.1 * math.log1p(spans)
    if support is not None:
        odds -= SUPPORT_WEIGHT * max(0.0, USUAL_SUPPORT - support)
    return _percent(odds - math.log(max(n_tracks, 1)))


def evidence_confidence(support: float, spans: int, length_s: float, n_tracks: int) -> int:
    """Return the probability from a clip's support and spans, in percent.

    A logistic regression, fitted to all candidates of the clips that votes leave in doubt, of 188
    indexed and 179 unknown real tracks and 66 rendered ones, in an index of 359 (-5.0, 5.0, -2.9,
    1.06), and shifted towards caution until three of the 4,296 unknown clips were named. A
    candidate's support hardly rises with the number of tracks that it was chosen from: the largest
    wrong one of a query (95 %) rose from 4.0 to 4.2 deviations when 10,000 synthetic tracks joined
    93. But real ones share sounds, so the odds fall with the square root of that number.
    """
    odds = -6.4 + 5.0 * math.log1p(spans) - 2.9 * math.log(max(length_s, SHORTEST_S))
    odds += SUPPORT_WEIGHT * min(support, MOST_SUPPORT)
    return _percent(odds - TRACKS_WEIGHT * math.log(max(n_tracks, 1)))


def likeness_confidence(likeness: float, support: float, n_tracks: int) -> int:
    """Return the probability from a clip's likeness to a place and its evidence, in percent.

    A logistic regression, fitted to the five best places of the clips that votes and evidence left
    in doubt, on the same tracks (-14.7, 1.8, 2.1), and shifted towards caution until no further
    unknown clip was named. The best place is chosen from all tracks, so the odds fall in
    proportion to their number.
    """
    odds = -15.7 + 1.8 * likeness + 2.1 * min(support, MOST_SUPPORT)
    return _percent(odds - math.log(max(n_tracks, 1)))


def _percent(odds: float) -> int:
    """Round a probability down, so that 100 is never claimed."""
    return int(100 / (1 + math.exp(-max(min(odds, 30.0), -30.0))) - 1e-6)
