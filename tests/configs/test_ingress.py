"""The ingress and the command line load no torch: they start fast and stay small."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["serve_app.deployments.api", "serve_app.cli.main"])
def test_no_torch_is_imported(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
