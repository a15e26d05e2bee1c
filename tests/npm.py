"""npm, if the machine has it and its registry can be reached."""

import shutil
import subprocess
from pathlib import Path

import pytest

LIMIT_S = 240.0
OFFLINE = (
    *("ENOTFOUND", "EAI_AGAIN", "ETIMEDOUT", "ECONNREFUSED", "ECONNRESET", "ENETUNREACH"),
    *("EHOSTUNREACH", "ERR_SOCKET_TIMEOUT", "E429", "E500", "E502", "E503", "E504"),
)


def npm_with(folder: Path, *command: str) -> str:
    """Let npm put packages into a folder; return npm's path, or skip if there is none."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("no node and npm on this machine")
    quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline")
    try:
        done = subprocess.run(
            [npm, *command, *quiet],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("the npm registry does not answer")
    if any(code in done.stderr for code in OFFLINE):
        pytest.skip("the npm registry cannot be reached")
    assert done.returncode == 0, done.stderr
    return npm
