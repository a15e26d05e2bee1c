import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from models.checkpoints.cache import CheckpointError
from models.checkpoints.cards import ModelCard
from pipelines.analysis.networks.compiled import CompiledFile

CPU = torch.device("cpu")

Checkpoint = Callable[[str], dict[str, torch.Tensor]]


def test_each_gpu_torch_and_checkpoint_has_a_file_of_its_own(
    tmp_path: Path, cards: dict[str, ModelCard], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = cards["musicnn-mtt"]

    def name() -> str:
        file = CompiledFile.of(card, tmp_path, torch.device("cuda"))
        assert file.path.parent == tmp_path / "musicnn-mtt"
        return file.path.name

    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "NVIDIA H200")
    first = name()
    assert first == f"compiled-NVIDIA-H200-torch{torch.__version__}-8584338591c2.bin"
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "NVIDIA L4")
    second = name()
    monkeypatch.setattr("torch.__version__", "9.9")
    assert len({first, second, name()}) == 3
    with pytest.raises(CheckpointError, match="not in"):  # its digest is stored by a pull
        CompiledFile.of(cards["mert-95m"], tmp_path, CPU)


def test_what_is_not_there_or_no_cache_is_compiled_anew(tmp_path: Path) -> None:
    file = CompiledFile(tmp_path / "compiled.bin")
    assert not file.restore()
    file.path.write_bytes(b"half a file")
    assert not file.restore()


PROCESS = """
import sys, torch
from pathlib import Path
from torch._dynamo.utils import counters
from pipelines.analysis.networks.compiled import CompiledFile

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.nn.functional.gelu(self.inner(x)).sum(1)

file = CompiledFile(Path(sys.argv[1]))
net = Net().eval()
net.compile(dynamic=False)
was_kept = file.restore()
with torch.inference_mode():
    for size in sys.argv[2:]:
        net(torch.ones(int(size), 8))
file.keep()
found = counters["inductor"]
print(was_kept, found["fxgraph_cache_hit"], found["fxgraph_cache_miss"])
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)  # 80 s of CPU time, of which a loaded machine has given a tenth
def test_another_process_finds_what_was_compiled(tmp_path: Path) -> None:
    path = tmp_path / "compiled.bin"

    def run(cache: str, *sizes: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PROCESS, str(path), *sizes],
            capture_output=True,
            text=True,
            check=True,
            env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / cache), "PATH": "/usr/bin:/bin"}
            | {"PYTHONPATH": ":".join(sys.path)},
        )
        return done.stdout.strip()

    assert run("here", "2") == "False 0 1"
    before = path.stat()
    assert run("there", "2") == "True 1 0"
    assert path.stat().st_ino == before.st_ino  # nothing new to keep
    assert run("more", "2", "3") == "True 1 1"
    assert run("later", "2", "3") == "True 2 0"
    assert [found.name for found in tmp_path.iterdir() if found.is_file()] == ["compiled.bin"]
