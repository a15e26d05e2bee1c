"""`afa mcp`: tools for agents, over standard input and output."""

from importlib.util import find_spec

import httpx

from configs.settings import Settings
from serve_app.cli.environment import fail, told
from serve_app.cli.service import running_session
from serve_app.composition.files import LocalFiles, make_private
from serve_app.library.library import Library

NEEDS_SDK = "this needs the MCP SDK: pip install 'afa[mcp]'"


def mcp() -> None:
    """Let agents analyse, look up and search music: a Model Context Protocol server over stdio.

    If the service of this installation is running, it answers. Otherwise this process does, with
    the library that `afa scan` filled.
    """
    if find_spec("mcp") is None:
        fail(NEEDS_SDK)
    from serve_app.cli.mcp.here import HereBackend
    from serve_app.cli.mcp.server import build
    from serve_app.cli.mcp.service_backend import ServiceBackend

    settings = Settings()
    files = LocalFiles(settings.data_dir.absolute())
    session = running_session(files)
    if session is not None:
        key = {"Authorization": f"Bearer {session['local_key']}"}
        http = httpx.AsyncClient(base_url=session["url"], headers=key, trust_env=False)
        build(ServiceBackend(http)).run()
        return
    make_private(files.data_dir)
    with told(ValueError, OSError):
        library = Library(files.library_url(settings), files.library_view_dir)
    build(HereBackend(files, library)).run()
