"""The repository itself: our packages are the ones that are imported, and the layout holds."""

import tomllib
from pathlib import Path

import afa
import configs
import models
import pipelines
import serve_app

REPOSITORY = Path(__file__).parents[1]
TOP_LEVEL = {
    *("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "Makefile", "cluster.yaml"),
    *("configs", "models", "pipelines", "serve_app", "benchmarks", "tests", "docs"),
    *("afa", "clients", "integrations", "deploy"),
}


def test_our_packages_are_those_of_the_repository() -> None:
    for package in (afa, configs, models, pipelines, serve_app):
        assert Path(package.__file__ or "").is_relative_to(REPOSITORY)


def test_the_top_level_holds_what_the_style_names() -> None:
    visible = {path.name for path in REPOSITORY.iterdir() if not path.name.startswith(".")}
    assert {name for name in visible if not name.endswith(".egg-info")} - {"build"} <= TOP_LEVEL


def test_every_file_of_a_package_is_installed_with_it() -> None:
    described = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]
    for package, patterns in described["package-data"].items():
        installed = {path for pattern in patterns for path in (REPOSITORY / package).glob(pattern)}
        files = {path for path in (REPOSITORY / package).rglob("*") if path.is_file()}
        # code is found automatically, and the pages that explain a room are read in the repository
        others = {path for path in files if path.suffix not in {".py", ".pyc", ".md"}}
        assert others <= installed


def test_type_checkers_see_the_annotations_of_the_library() -> None:
    for package in ("afa", "models", "pipelines"):
        assert (REPOSITORY / package / "py.typed").is_file()


def test_every_folder_with_code_is_a_package() -> None:
    for package in ("afa", "configs", "models", "pipelines", "serve_app", "benchmarks"):
        for path in (REPOSITORY / package).rglob("*.py"):
            assert (path.parent / "__init__.py").exists()


def test_no_package_below_tests() -> None:
    assert not list((REPOSITORY / "tests").rglob("__init__.py"))


def test_no_room_is_crowded() -> None:
    """A folder that is too large to take in at a glance needs rooms."""
    for package in ("afa", "configs", "models", "pipelines", "serve_app", "benchmarks"):
        folders = {path.parent for path in (REPOSITORY / package).rglob("*.py")}
        for folder in folders:
            modules = [path for path in folder.glob("*.py") if path.stem != "__init__"]
            limit = 20 if folder.name == "training" else 15
            assert len(modules) <= limit, f"{folder.relative_to(REPOSITORY)}: {len(modules)}"
