"""Walls around a process that reads untrusted bytes; Linux, standard library only.

Every wall that the platform refuses is reported by name with the reason, never dropped silently.
Walls are one-way: nothing here can be undone by the process that called it.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Callable

ON = "on"
NOBODY = 65_534

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_CLONE_NEWUSER = 0x1000_0000
_CLONE_NEWNET = 0x4000_0000

# linux/filter.h, linux/seccomp.h
_LOAD, _JUMP_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _KILL, _REFUSE = 0x7FFF_0000, 0x8000_0000, 0x0005_0001  # refuse = EPERM
_AT_NUMBER, _AT_ARCHITECTURE, _AT_THIRD_ARGUMENT = 0, 4, 32
_PROT_EXEC = 4

_AUDIT_ARCHITECTURE = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_X32_BIT = 0x4000_0000

# System calls that decoding from open descriptors needs: (x86-64, aarch64).
# No open, no stat by path, no socket, no execve, no clone, no kill, no ptrace, no setitimer, no
# prctl. newfstatat takes a path whatever its flags say, so a C library that builds fstat on it
# (glibc 2.33 to 2.38) has no fstat: decoding does not need it.
_ALLOWED_CALLS = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "lseek": (8, 62),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "nanosleep": (35, 101),
    "getpid": (39, 172),
    "exit": (60, 93),
    "gettimeofday": (96, 169),
    "sysinfo": (99, 179),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "set_robust_list": (273, 99),
    "getrandom": (318, 278),
    "membarrier": (324, 283),
    "rseq": (334, 293),
}
# Allowed unless they ask for executable memory.
_MEMORY_CALLS = {"mmap": (9, 222), "mprotect": (10, 226)}


_N_DESCRIPTORS = 32


def leave_network() -> str:
    """Move into an empty network namespace (through a user namespace when not root)."""
    flags = _CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWUSER | _CLONE_NEWNET
    return _attempt(lambda: _call("unshare", flags))


def become_nobody() -> str:
    """Change from root to the user nobody; an ordinary user stays the same."""
    if os.geteuid() != 0:
        return "off: not started as root, stays the same user"

    def change() -> None:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)

    return _attempt(change)


def forbid_new_privileges() -> str:
    """Give up set-user-id programs and being traced by processes of the same user."""

    def forbid() -> None:
        _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)

    return _attempt(forbid)


def end_with_parent(parent: int) -> str:
    """Have the kernel kill this process when its parent ends; end now if it has already ended."""

    def bind() -> None:
        _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return _attempt(bind)


def limit_resources(address_space_bytes: int, cpu_s: int, file_bytes: int) -> str:
    """Set hard limits on memory, processor time, files and descriptors; forbid core dumps.

    Args:
        address_space_bytes: Total size of all mappings, including libraries.
        cpu_s: Seconds of processor time before SIGXCPU ends the process.
        file_bytes: Maximum size of a written file.
    """

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (address_space_bytes,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
        resource.setrlimit(resource.RLIMIT_NOFILE, (_N_DESCRIPTORS,) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return _attempt(limit)


def filter_system_calls() -> str:
    """Allow only what decoding from open descriptors needs; everything else fails with EPERM."""
    machine = platform.machine()
    if not sys.platform.startswith("linux") or machine not in _AUDIT_ARCHITECTURE:
        return f"off: no filter for {sys.platform} on {machine}"
    program = seccomp_program(machine)
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    pointer = ctypes.create_string_buffer(header, len(header))
    return _attempt(
        lambda: _call(
            "prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(pointer), 0, 0
        )
    )


def seccomp_program(machine: str) -> bytes:
    """Assemble the classic BPF filter for ``machine`` ("x86_64" or "aarch64")."""
    column = 0 if machine == "x86_64" else 1
    allowed = [numbers[column] for numbers in _ALLOWED_CALLS.values()]
    memory = [numbers[column] for numbers in _MEMORY_CALLS.values()]
    program = [
        (_LOAD, 0, 0, _AT_ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCHITECTURE[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _AT_NUMBER),
    ]
    if machine == "x86_64":
        program += [(_JUMP_ANY_BIT, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL)]
    for number in allowed:
        program += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for number in memory:
        program += [
            (_JUMP_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _AT_THIRD_ARGUMENT),
            (_JUMP_ANY_BIT, 1, 0, _PROT_EXEC),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _REFUSE),
        ]
    program.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _attempt(build: Callable[[], None]) -> str:
    try:
        build()
    except (OSError, ValueError, AttributeError) as refusal:
        return f"off: {refusal}"
    return ON


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*(ctypes.c_ulong(argument) for argument in arguments)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
