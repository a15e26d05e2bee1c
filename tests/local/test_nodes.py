import socket

import pytest

from serve_app.local import nodes


def test_a_head_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "ANSWER_LIMIT_S", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(nodes.NoClusterError, match="did not answer in 2 s"):
            nodes.versions_by_node()
