import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
CRASH = """
def test_that_ends_its_process_once():
    if not os.path.exists("crashed"):
        open("crashed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_dies_fails_one_test_and_nothing_waits_for_it(tmp_path: Path) -> None:
    for module in range(8):
        tests = "".join(
            f"def test_{one}():\n    time.sleep(0.05)\n" for one in range(1 + 5 * (module % 3 == 0))
        )
        head = "import os\nimport signal\nimport time\n"
        code = head + tests + CRASH * (module == 3)
        (tmp_path / f"test_{module}.py").write_text(code)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    options = ["-p", "tests.by_module", "-p", "no:randomly", "-n", "2", "--dist", "loadscope"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, "--no-loadscope-reorder"],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "1 failed, 24 passed" in run.stdout, run.stdout + run.stderr
