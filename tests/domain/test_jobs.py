"""Job states and statistics as plain types."""

from serve_app.domain.jobs import JobState, JobStats, LaneStats


def test_only_the_last_two_states_are_terminal() -> None:
    assert [state.value for state in JobState if state.is_terminal] == ["complete", "failed"]
    assert [state.value for state in JobState] == ["queued", "running", "complete", "failed"]


def test_depth_adds_the_lanes() -> None:
    lanes = (LaneStats("pro", 3, 1, 0, 0.0), LaneStats("free", 4, 2, 1, 0.0))
    assert JobStats(lanes, 1.0, 1.0).depth == 7
