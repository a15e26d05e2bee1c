"""The ingress and the command line import nothing heavy: they start fast and stay small."""

import subprocess
import sys

import pytest

HEAVY = {"torch", "ray", "lance", "pandas", "transformers"}
"""Lance brings pandas; a command loads it when it opens a library."""


@pytest.mark.parametrize(
    ("module", "needed"),
    [("serve_app.deployments.api", {"ray", "pandas"}), ("serve_app.cli.main", set())],
)
def test_nothing_heavy_is_imported(module: str, needed: set[str]) -> None:
    code = f"import sys, {module}; print(*{HEAVY - needed} & sys.modules.keys())"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not ran.stdout.strip()
