"""An echo on LitServe: run by a Python that has it, so it imports none of our code.

``python litserve_echo.py PORT``; LitServe is a comparator only, never a dependency. The file may
not be called litserve.py, or it would import itself.
"""

import sys
from typing import Any

import litserve


class Echo(litserve.LitAPI):  # type: ignore[misc]
    """Answers in the worker process, as a model would."""

    def setup(self, device: str) -> None:
        """Load nothing."""

    def decode_request(self, request: dict[str, Any]) -> bool:
        """Accept the body."""
        return bool(request["ok"])

    def predict(self, x: bool) -> bool:
        """Return it."""
        return x

    def encode_response(self, output: bool) -> dict[str, bool]:
        """Write the answer."""
        return {"ok": output}


if __name__ == "__main__":
    litserve.LitServer(Echo(), accelerator="cpu", workers_per_device=1).run(
        host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="error"
    )
