"""What the site does differently from the pages in the repository."""

import re
from pathlib import Path
from typing import Any

BOOK = Path(__file__).parents[1]
OUTWARD = re.compile(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+([^)\s#]+)(?:#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Put every page of a folder into the navigation where the folder's name stands."""
    config.nav = [_opened(entry) for entry in config.nav]
    config.nav = [entry for entry in config.nav if entry != {"Works with": []}]
    return config


def _opened(entry: Any) -> Any:
    match entry:
        case dict():
            return {
                name: [page for one in pages for page in _pages(one)]
                for name, pages in entry.items()
            }
        case _:
            return entry


def _pages(name: str) -> list[str]:
    folder = BOOK / name
    if folder.suffix == ".md":
        return [name]
    # README.md begins a folder: capital letters come first.
    return [page.relative_to(BOOK).as_posix() for page in sorted(folder.glob("*.md"))]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Name what lies outside the book by its path, where the repository's page links to it."""
    here = (BOOK / page.file.src_path).parent

    def named(link: re.Match[str]) -> str:
        target = (here / re.match(r"[^#]*", link[0].rpartition("(")[2].rstrip(")"))[0]).resolve()
        if target.is_relative_to(BOOK):
            return link[0]
        return f"{link[1]} (`{target.relative_to(BOOK.parent)}`)"

    return OUTWARD.sub(named, markdown)
