"""Job states as plain types, and the work of jobs as JSON."""

import json

import pytest

from serve_app.ledger.jobs.types import (
    AnalysisJob,
    FileSource,
    JobState,
    ObjectSource,
    SimulatedSource,
    Source,
    UrlSource,
    source_from_json,
    source_to_json,
)


def test_a_range_of_tempi_survives_and_may_be_absent() -> None:
    job = AnalysisJob(FileSource("a"), 60.0, 10, tempo_range=(80.0, 160.0))
    plain = json.loads(json.dumps(job.to_json()))
    assert AnalysisJob.from_json(plain) == job
    del plain["tempo_range"]
    assert AnalysisJob.from_json(plain).tempo_range is None


def test_only_the_last_two_states_are_terminal() -> None:
    assert [state.value for state in JobState if state.is_terminal] == ["complete", "failed"]
    assert [state.value for state in JobState] == ["queued", "running", "complete", "failed"]


@pytest.mark.parametrize(
    "source",
    [
        ObjectSource("uploads/job_1", "ab" * 32, "audio/mpeg"),
        UrlSource("https://example.org/a.mp3", "example.org"),
        FileSource("/music/a.flac"),
        SimulatedSource("isrc:X", "uploads/job_2"),
    ],
)
def test_work_survives_as_json(source: Source) -> None:
    job = AnalysisJob(source, 900, 15 << 20, "spotify", True, "models||isrc:X", True)
    assert AnalysisJob.from_json(json.loads(json.dumps(job.to_json()))) == job
    assert source_from_json(source_to_json(source)) == source


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (
            {
                "source": {"kind": "object", "key": "k", "sha256": "s", "media_type": "audio/wav"},
                "format": "spotify",
                "include_embedding": True,
                "max_audio_s": 3600,
                "max_bytes": 1000,
            },
            AnalysisJob(ObjectSource("k", "s", "audio/wav"), 3600, 1000, "spotify", True),
        ),
        (
            {
                "source": {"kind": "url", "url": "https://a.example/b", "host": "a.example"},
                "format": None,
                "include_embedding": True,
                "max_audio_s": 900,
                "max_bytes": 1000,
                "cache_key": "m||isrc:X",
            },
            AnalysisJob(
                UrlSource("https://a.example/b", "a.example"),
                900,
                1000,
                include_embedding=True,
                cache_key="m||isrc:X",
                is_for_lookup=True,
            ),
        ),
        (
            {
                "source": {"kind": "simulated", "seed": "x"},
                "format": None,
                "include_embedding": False,
                "max_audio_s": 900,
                "max_bytes": 1000,
            },
            AnalysisJob(SimulatedSource("x"), 900, 1000),
        ),
    ],
)
def test_jobs_that_0_1_queued_are_read(written: dict[str, object], read: AnalysisJob) -> None:
    assert AnalysisJob.from_json(written) == read


def test_fields_of_a_later_version_are_passed_over_and_unknown_sources_named() -> None:
    assert source_from_json({"kind": "file", "path": "a", "later": 1}) == FileSource("a")
    with pytest.raises(ValueError, match="unknown kind of source: 'tape'"):
        source_from_json({"kind": "tape"})
