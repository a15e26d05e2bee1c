"""The ingress loads no torch: it starts fast and stays small."""

import subprocess
import sys


def test_the_ingress_imports_no_torch() -> None:
    code = "import sys, serve_app.deployments.api; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
