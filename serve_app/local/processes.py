"""Which processes run on this machine, and which ports they have open."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

RAYS = ("raylet", "gcs_server", "ray::", "ray-dashboard")
"""Names of the processes of a Ray node, apart from those that a raylet started."""


@dataclass(frozen=True, slots=True, order=True)
class Listener:
    """A port on which a process accepts connections.

    Attributes:
        port: TCP port.
        address: Address of the interface; "0.0.0.0" and "::" mean all interfaces.
        process: Name of the process.
    """

    port: int
    address: str
    process: str

    @property
    def is_open(self) -> bool:
        """Whether other machines can reach it."""
        address = ipaddress.ip_address(self.address)
        mapped = getattr(address, "ipv4_mapped", None)
        return not (mapped or address).is_loopback


def birth(pid: int) -> str | None:
    """Return what identifies a live process uniquely, independent of clock changes.

    That is the boot of the machine, and how many ticks after it the process started; field 22 of
    proc(5).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in ("Z", "X") else f"{boot} {fields[19]}"


def descendants(pid: int) -> dict[str, int]:
    """Return the live descendants of a process, as ``name-pid`` to pid; none if it has ended."""
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return {}
    return {f"{name_of(child)}-{child.pid}": child.pid for child in children}


def is_started_by_afa(pid: int) -> bool:
    """Return whether the parent of a process is a command or the service of afa."""
    try:
        parent = psutil.Process(pid).parent()
        words = [] if parent is None else parent.cmdline()
    except psutil.Error:
        return False
    return any(Path(word).name == "afa" or word.startswith("serve_app.") for word in words)


def name_of(process: psutil.Process) -> str:
    """Return the name that a process was started by, or gave itself."""
    try:
        words = " ".join(process.cmdline()).split()
        return Path(words[0]).name if words else process.name()
    except psutil.Error:
        return "ended"


def listeners(pids: Iterable[int]) -> list[Listener]:
    """Return the ports that these processes have open; another user's processes show none."""
    found = set()
    for pid in pids:
        try:
            process = psutil.Process(pid)
            for socket in process.net_connections("tcp"):
                if socket.status == psutil.CONN_LISTEN:
                    found.add(Listener(socket.laddr.port, socket.laddr.ip, name_of(process)))
        except psutil.Error:
            continue
    return sorted(found)


def raylets() -> list[int]:
    """Return the raylet processes on this machine; each makes it a node of a Ray cluster."""
    return [one.pid for one in psutil.process_iter() if name_of(one) == "raylet"]


def rays() -> list[int]:
    """Return all Ray processes on this machine."""
    started = {pid for raylet in raylets() for pid in descendants(raylet).values()}
    named = {one.pid for one in psutil.process_iter() if name_of(one).startswith(RAYS)}
    return sorted(started | named)


def has_token(raylet: int) -> bool:
    """Return whether a Ray node requires a token."""
    try:
        return psutil.Process(raylet).environ().get("RAY_AUTH_MODE") == "token"
    except psutil.Error:
        return True  # another user's, which cannot be read, or it has just ended
