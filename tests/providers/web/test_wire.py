import json
import sys

import httpx
import pytest

from serve_app.providers.identities.registry import ALL
from serve_app.providers.recognisers import acrcloud
from serve_app.providers.recognisers.discogs import Discogs
from serve_app.providers.recognisers.registry import KINDS
from serve_app.providers.recognisers.releases import MusicBrainzReleases
from serve_app.providers.web.http_client import Reply
from serve_app.providers.web.wire import Wire, parse

SAMPLES: dict[object, object] = {str: "x", int: 1, acrcloud.Status: {"code": 0}}
SHAPES = [
    shape
    for module in dict.fromkeys(
        one.__module__ for one in (*ALL, *KINDS, Discogs, MusicBrainzReleases)
    )
    for shape in vars(sys.modules[module]).values()
    if isinstance(shape, type) and issubclass(shape, Wire) and shape is not Wire
]


def reply(body: object) -> Reply:
    return Reply("x", 200, httpx.Headers(), json.dumps(body).encode())


@pytest.mark.parametrize(
    "shape", SHAPES, ids=lambda shape: f"{shape.__module__.split('.')[-1]}.{shape.__name__}"
)
def test_null_is_read_as_absent_in_every_shape_of_every_provider(shape: type[Wire]) -> None:
    fields = {field.alias or name: field for name, field in shape.model_fields.items()}
    least = {name: SAMPLES[one.annotation] for name, one in fields.items() if one.is_required()}
    nulls = dict.fromkeys(fields) | least
    assert parse(shape, reply(nulls)) == parse(shape, reply(least))


def test_a_null_item_of_a_list_is_left_out() -> None:
    assert reply({"a": [None, {"b": None, "c": 0}], "d": False}).json() == {
        "a": [{"c": 0}],
        "d": False,
    }


def test_a_number_is_read_as_text() -> None:
    found = parse(acrcloud.Music, reply({"release_date": 2021, "label": 7}))
    assert (found.release_date, found.label) == ("2021", "7")
