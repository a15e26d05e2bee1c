"""Locks on files, which last as long as any process has the file open."""

import errno
import fcntl
from typing import IO

WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def take_lock(file: IO[str] | int) -> bool:
    """Take the lock of an open file unless another process has it; return whether to go on.

    Processes that inherit the file keep the lock. A network or FUSE file system may have no locks:
    there the answer is always yes.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
    return True
