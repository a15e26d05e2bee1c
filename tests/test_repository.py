"""The repository itself: our packages are the ones that are imported, and the layout holds."""

from pathlib import Path

import configs
import models
import pipelines
import serve_app

REPOSITORY = Path(__file__).parents[1]
TOP_LEVEL = {
    *("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "Makefile", "cluster.yaml"),
    *("configs", "models", "pipelines", "serve_app", "benchmarks", "tests"),
}


def test_our_packages_are_those_of_the_repository() -> None:
    for package in (configs, models, pipelines, serve_app):
        assert Path(package.__file__ or "").is_relative_to(REPOSITORY)


def test_the_top_level_holds_what_the_style_names() -> None:
    visible = {path.name for path in REPOSITORY.iterdir() if not path.name.startswith(".")}
    assert {name for name in visible if not name.endswith(".egg-info")} - {"build"} <= TOP_LEVEL


def test_no_package_below_tests() -> None:
    assert not list((REPOSITORY / "tests").rglob("__init__.py"))
