"""The spawner of `pipelines.audio.decode`: forks one sandboxed child per file.

Run as a script, isolated (`python -I -S decode_spawner.py ROOT AV_FOLDER AV_VERSION`), with a
SOCK_SEQPACKET socket as stdin. The spawner imports PyAV once, gives up network and privileges, and
never reads audio itself; each request is one datagram of JSON with four descriptors (audio, output
pipe, samples, status pipe). The child forked for it keeps the first three, puts up the walls of one
process and serves the request with `pipelines.audio.decode_child`. It ends with the spawner at the
latest, and at its deadline the spawner kills it, however it handles signals. The spawner writes the
child's wait status, one int32, to the status pipe.

Our own modules are imported inside functions, because `main` learns where they are.
"""

import array
import contextlib
import io
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import wave
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame


def run_child(
    request: dict[str, Any], descriptors: list[int], walls: dict[str, str], spawner: int
) -> None:
    """Become the child for one file: put up the walls of one process, decode, never return."""
    from pipelines.audio import sandbox
    from pipelines.audio.decode_child import SAMPLES, serve_request

    code = 1
    try:
        walls = {**walls, "lifetime": sandbox.end_with_parent(spawner)}
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(descriptors[0], 0)
        os.dup2(descriptors[1], 1)
        os.dup2(descriptors[2], SAMPLES)
        os.closerange(SAMPLES + 1, 4096)
        walls["limits"] = sandbox.limit_resources(
            request["address_space_bytes"], request["cpu_s"], 2 * 4 * request["row_samples"]
        )
        walls["system calls"] = sandbox.filter_system_calls()
        serve_request(request, walls)
        code = 0
    except BrokenPipeError:
        code = 0  # nobody reads any more: the caller has what it wanted, or has gone
    finally:
        os._exit(code)


@dataclass(frozen=True, slots=True)
class Running:
    """A child: where its end is reported, and when it is killed (monotonic seconds)."""

    status_pipe: int
    deadline: float


class Spawner:
    """Forks a child per request, kills it at its deadline, and reports how it ended."""

    def __init__(self, control: socket.socket, walls: dict[str, str]) -> None:
        self._control = control
        self._walls = walls
        self._children: dict[int, Running] = {}

    def run(self) -> None:
        """Serve until the other end of the control socket closes; then the children end too."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        while True:
            control = self._control.fileno()
            ready, _, _ = select.select([control, wake_read], [], [], self._kill_overdue())
            if wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
            self._reap()
            if control in ready and not self._accept():
                return

    def _accept(self) -> bool:
        data, ancillary, _, _ = self._control.recvmsg(65_536, socket.CMSG_SPACE(4 * 4))
        if not data:
            return False
        descriptors = array.array("i")
        for _, _, packed in ancillary:
            descriptors.frombytes(packed)
        *of_child, status = descriptors
        request = json.loads(data)
        spawner = os.getpid()
        pid = os.fork()
        if pid == 0:
            run_child(request, of_child, self._walls, spawner)
        for descriptor in of_child:
            os.close(descriptor)
        self._children[pid] = Running(status, time.monotonic() + request["wall_s"])
        return True

    def _kill_overdue(self) -> float | None:
        """Kill overdue children; return the seconds to the next deadline, None if there is none."""
        next_s: float | None = None
        for pid, child in self._children.items():
            left_s = child.deadline - time.monotonic()
            if left_s <= 0:
                os.kill(pid, signal.SIGKILL)  # not reaped yet, so the id is still its own
            elif next_s is None or left_s < next_s:
                next_s = left_s
        return next_s

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            pipe = self._children.pop(pid).status_pipe
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, struct.pack("<i", status))
            os.close(pipe)


def warm_up(av_module: Any) -> None:
    """Decode and resample a moment of silence, so that nothing is loaded once the walls are up."""
    from pipelines.audio.decode_child import Converter, planes_of

    silence = io.BytesIO()
    with wave.open(silence, "wb") as file:
        file.setparams((2, 2, 48_000, 0, "NONE", ""))
        file.writeframes(bytes(48_000))
    silence.seek(0)
    converter = Converter(2)
    with av_module.open(silence, "r") as container:
        container.streams.audio[0].codec_context.thread_count = 1
        frames: Iterable[AudioFrame] = container.decode(audio=0)
        for frame in frames:
            for converted in converter.convert(frame):
                planes_of(converted, 0, converted.samples)
    json.loads(json.dumps({"s": 0.5}))


def main(root: str, av_folder: str, av_version: str) -> None:
    """Set up once, say hello, then fork on demand."""
    sys.path[:0] = [root]
    from pipelines.audio import sandbox

    control = socket.socket(fileno=os.dup(0))
    sys.path.append(av_folder)
    try:
        import av

        if av.__version__ != av_version:
            raise ImportError(f"PyAV {av_version} is needed, {av.__version__} is installed")
    except ImportError as fault:
        control.send(json.dumps({"fault": str(fault)}).encode())
        return
    warm_up(av)
    walls = {  # after the imports: a new user namespace may be unable to read the modules
        "network": sandbox.leave_network(),
        "user": sandbox.become_nobody(),
        "privileges": sandbox.forbid_new_privileges(),
    }
    control.send(json.dumps({"walls": walls}).encode())
    Spawner(control, walls).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
