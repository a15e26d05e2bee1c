"""torchaudio runs in pure torch together with a CPU-only torch."""

import subprocess
import sys
from pathlib import Path

from serve_app.local.torchaudio_cpu import disable_cuda_extension


def test_only_the_native_extension_is_set_aside(tmp_path: Path) -> None:
    for name in ("_torchaudio.abi3.so", "libtorchaudio.abi3.so", "other.so", "__init__.py"):
        (tmp_path / name).touch()
    assert len(disable_cuda_extension(tmp_path)) == 2
    assert {path.name for path in tmp_path.glob("*.so")} == {"other.so"}
    assert disable_cuda_extension(tmp_path) == []


def test_torchaudio_computes_here() -> None:
    code = """
import torch, torchaudio
print(torchaudio.transforms.MelSpectrogram()(torch.zeros(2, 9000)).shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch.Size([2, 128, 46])" in done.stdout
