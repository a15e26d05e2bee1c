from collections.abc import AsyncIterator

import pytest

from tests.providers.recognisers.identify_stub import IdentifyStub
from tests.providers.recognisers.services import Service, made


@pytest.fixture
async def service(service_name: str, remote: IdentifyStub) -> AsyncIterator[Service]:
    """The service named by the module or by the parameter."""
    one = made(service_name, remote.url)
    yield one
    await one.client.close()
