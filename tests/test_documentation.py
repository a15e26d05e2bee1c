"""The pages name every route, error code, price and tier that exists, and nothing that does not."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from configs.tables import load_table
from serve_app.cli.main import app
from serve_app.domain import errors
from serve_app.domain.tiers import SOLD
from tests.api.described import described_app
from tests.data.audio_files import ENCODINGS

REPOSITORY = Path(__file__).parents[1]
README = REPOSITORY / "README.md"
API = (REPOSITORY / "docs" / "api.md").read_text()
CODE = ("afa", "serve_app", "pipelines", "models", "configs", "benchmarks")
AUDIO_CODES = {"unprocessable_audio", "audio_too_long", "audio_too_short"}

ROOMS = [page for folder in CODE for page in sorted((REPOSITORY / folder).rglob("README.md"))]
PAGES = [
    README,
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    *sorted((REPOSITORY / ".github").rglob("*.md")),
    *sorted((REPOSITORY / "clients").glob("*/README.md")),
    *sorted((REPOSITORY / "integrations").glob("*/README.md")),
    *ROOMS,
]
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FOLDERS = "|".join((*CODE, "clients", "integrations", "tests", "docs"))
PATH = re.compile(rf"`((?:{FOLDERS})/[^\s`:]*)`")
PLACEHOLDER = re.compile("NAME|SUBJECT")
"""What stands for any name in a path: ``routes/NAME.py``."""

LONGEST_ROOM = 30
FRONT_PAGE_WORDS = 1200

SHELL = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED_TEST = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(\w+)`")
ADDRESS = re.compile(r"(/(?:v1|spotify/v1|acousticbrainz)/[^\s?`\"'|\])>]*)\?([^\s`\"'|\])>]+)")
"""A path of the service and its query; what other programs send to `/api` is up to them."""
COMMAND = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?afa ([^#|>\n]*)", re.MULTILINE)


def test_every_format_that_is_read_is_named() -> None:
    route = described_app().openapi()["paths"]["/v1/audio-features/upload"]["post"]["description"]
    for text in (API, route):
        named = set(re.findall(r"[\w-]+", text))
        assert {encoding.name for encoding in ENCODINGS} | {
            "APE",
            "DSF",
            "DFF",
            "Musepack",
        } <= named


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def name_of(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


def exists(path: str) -> bool:
    """Return whether a path exists; with a placeholder, whether the folder before it does."""
    parts = path.split("/")
    known = next((i for i, part in enumerate(parts) if PLACEHOLDER.search(part)), len(parts))
    return REPOSITORY.joinpath(*parts[:known]).exists()


def anchors(page: Path) -> set[str]:
    """Return the fragments by which the headings of a page are linked to."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def leads_somewhere(page: Path, link: str) -> bool:
    """Return whether a relative link of a page leads to a file, and to its heading if named."""
    path, _, fragment = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not fragment or fragment in anchors(target))


def routes() -> list[str]:
    return sorted(described_app().openapi()["paths"])


def codes() -> list[str]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return sorted({k.code for k in kinds if issubclass(k, errors.AfaError)} | AUDIO_CODES)


@pytest.mark.parametrize("path", routes())
def test_every_route_stands_in_the_reference(path: str) -> None:
    short = path.removeprefix("/spotify/v1") if path.startswith("/spotify") else path
    assert f"{short}`" in API


@pytest.mark.parametrize("code", codes())
def test_every_error_code_stands_in_the_reference(code: str) -> None:
    assert f"`{code}`" in API


@pytest.mark.parametrize(
    ("row", "price"),
    [
        ("POST /v1/audio-features/upload", "analysis"),
        ("POST /v1/bpm", "bpm"),
        ("POST /v1/identify", "identify"),
        ("GET /v1/audio-features/{id}", "features_by_id_miss"),
        ("GET /v1/audio-features", "features_by_name_miss"),
        ("GET /v1/key-bpm", "key_bpm_miss"),
        ("GET /v1/beatgrid/{id}", "beatgrid_miss"),
        ("GET /v1/similar/{id}", "similar"),
        ("POST /v1/similar", "similar"),
        ("GET /v1/path", "path"),
        ("POST /v1/embed", "embed"),
        ("GET /v1/similar?text=", "similar"),
        ("POST /v1/audio-features", "batch_slot"),
        ("GET /v1/resolve/{id}", "resolve"),
        ("POST /v1/assets/upload", "asset_upload"),
    ],
)
def test_every_price_stands_in_the_reference(row: str, price: str) -> None:
    line = next(line for line in API.splitlines() if line.startswith(f"| `{row}` "))
    assert re.search(
        rf"\b{load_table('prices')[price]}\b", line.rpartition("|")[0].rpartition("|")[2]
    )


@pytest.mark.parametrize("tier", SOLD)
def test_the_tiers_numbers_stand_in_the_reference(tier: str) -> None:
    line = next(line for line in API.splitlines() if line.startswith(f"| {tier} "))
    numbers = line.replace(" ", "")
    row = load_table("tiers")[tier]
    for name in ("monthly_credits", "cache_lookups", "grace_credits"):
        assert str(row[name]) in numbers
    assert f"{row['upload_bytes'] // 2**20}MB" in numbers


@pytest.mark.parametrize("tier", SOLD)
def test_the_rates_stand_in_the_reference(tier: str) -> None:
    rate = load_table("tiers")[tier]["rate"]
    rates = f"{tier} {rate['read']} / {rate['compute']} / {rate['poll']}"
    assert rates in " ".join(API.split())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = [link for link in LINK.findall(prose(page)) if ":" not in link]
    assert [link for link in links if not leads_somewhere(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_path_that_is_named_exists(page: Path) -> None:
    assert [path for path in PATH.findall(prose(page)) if not exists(path)] == []


def test_paths_and_links_are_noticed() -> None:
    text = "see `models/no.py`, `serve_app/api/routes/NAME.py` and [it](../no.md#here)"
    named = PATH.findall(text)
    assert named == ["models/no.py", "serve_app/api/routes/NAME.py"]
    assert [exists(path) for path in named] == [False, True]
    assert not exists("serve_app/no_room/NAME.py")
    assert LINK.findall(text) == ["../no.md#here"]
    page = REPOSITORY / "docs" / "architecture.md"
    links = ("../README.md", "../no.md", "#a-charge", "#no", "decisions/README.md#decisions")
    assert [leads_somewhere(page, link) for link in links] == [True, False, True, False, True]


@cache
def queries() -> list[tuple[re.Pattern[str], set[str]]]:
    """Return every path of the service as a pattern, with the names of its query parameters."""
    found = []
    for path, methods in described_app().openapi()["paths"].items():
        names = {
            parameter["name"]
            for operation in methods.values()
            for parameter in operation.get("parameters", [])
            if parameter["in"] == "query"
        }
        found.append((re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), names))
    return found


def unknown_queries(text: str) -> list[str]:
    """Return the addresses in a text whose query no route accepts in full."""
    taken = queries()
    return [
        f"{path}?{query}"
        for path, query in ADDRESS.findall(text)
        if not any(
            pattern.fullmatch(path) and {one.partition("=")[0] for one in query.split("&")} <= names
            for pattern, names in taken
        )
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_addresses_ask_is_taken(page: Path) -> None:
    assert unknown_queries(page.read_text()) == []


def test_a_wrong_query_is_noticed() -> None:
    text = "`/v1/similar/{id}?n=1&year_min=1999`, /v1/similar/trk_1?limit=1 and '/v1/no?x=1'"
    assert unknown_queries(text) == ["/v1/similar/trk_1?limit=1", "/v1/no?x=1"]


@pytest.mark.parametrize("page", ROOMS, ids=name_of)
def test_the_page_of_a_room_is_short(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= LONGEST_ROOM


def test_the_front_page_is_short() -> None:
    assert len(README.read_text().split()) <= FRONT_PAGE_WORDS


def fault_of(line: str) -> str | None:
    """Return the command or option of a line that does not exist, or None."""
    words = [word for word in line.replace("\\", " ").split() if word != "…"]
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "commands"):
        name = words.pop(0)
        if name not in command.commands:
            return name
        command = command.commands[name]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    options = [word.partition("=")[0] for word in words if word.startswith("--") and word != "--"]
    return next((option for option in options if option not in known), None)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_that_is_shown_exists(page: Path) -> None:
    blocks = SHELL.findall(page.read_text())
    lines = [line for block in blocks for line in COMMAND.findall(block)]
    assert [fault for line in lines if (fault := fault_of(line))] == []


def test_every_command_stands_in_the_table() -> None:
    page = (REPOSITORY / "docs" / "command-line.md").read_text()
    table = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `afa"))
    whole: Any = typer.main.get_command(app)
    commands = {name for name, command in whole.commands.items() if not command.hidden}
    assert {name for name in commands if not re.search(rf"`(?:afa )?{name}\b", table)} == set()


def test_a_wrong_command_is_noticed() -> None:
    lines = COMMAND.findall("afa scan x --here\n$ afa scn x\n.venv/bin/afa keys list --al  # all\n")
    assert [fault_of(line) for line in lines] == [None, "scn", "--al"]


def test_every_test_that_closes_a_finding_exists() -> None:
    page = REPOSITORY / "docs" / "decisions" / "0047-what-examinations-found.md"
    rows = [
        line.split("|")[-2]
        for line in page.read_text().splitlines()
        if line.startswith("|") and "`tests/" in line
    ]
    named = [pair for row in rows for pair in NAMED_TEST.findall(row)]
    place, missing = "", []
    for path, name in named:
        place = path or place
        if f"def {name}(" not in (REPOSITORY / place).read_text():
            missing.append(f"{place}::{name}")
    assert len(named) > 50
    assert missing == []


def test_the_decisions_are_numbered_and_listed() -> None:
    folder = REPOSITORY / "docs" / "decisions"
    records = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    assert [path.name[:4] for path in records] == [f"{n:04d}" for n in range(1, len(records) + 1)]
    assert LINK.findall((folder / "README.md").read_text()) == [path.name for path in records]
