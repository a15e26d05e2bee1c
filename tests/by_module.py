"""Which process runs which tests, and which come first."""

from collections.abc import Iterator

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SYSTEM = "tests/system/"
LONGEST = (SYSTEM, "tests/contract/", "tests/browser/")


class ByModule(LoadScopeScheduling):
    """Gives each module to one process, and all tests of the real service to one."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return SYSTEM if module.startswith(SYSTEM) else module

    def _reschedule(self, node: WorkerController) -> None:
        """Give a process work until it has two tests: it keeps the last until it gets another.

        One module is not always enough: what a dead process has left may be one test or none.
        """
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByModule:
    return ByModule(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Begin with the slowest tests, which would keep others waiting at the end."""
    yield
    items.sort(key=lambda item: [not item.nodeid.startswith(folder) for folder in LONGEST])
