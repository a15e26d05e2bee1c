"""The written form of API keys."""

import binascii
import re

import pytest

from serve_app.domain.keys import (
    ALPHABET,
    check_owner,
    checksum,
    is_well_formed,
    new_key,
)


@pytest.mark.parametrize(("is_test", "prefix"), [(False, "afa_live_"), (True, "afa_test_")])
def test_new_keys_have_their_form(is_test: bool, prefix: str) -> None:
    key = new_key(is_test)
    assert re.fullmatch(prefix + "[0-9A-Za-z]{36}", key)
    assert is_well_formed(key)
    assert new_key(is_test) != key


def test_checksum_is_the_crc_32_in_base_62() -> None:
    digits = checksum("afa_live_example")
    number = 0
    for digit in digits:
        number = number * 62 + ALPHABET.index(digit)
    assert number == binascii.crc32(b"afa_live_example")
    assert len(digits) == 6


def test_every_changed_character_is_noticed() -> None:
    key = new_key()
    for place in range(len("afa_live_"), len(key)):
        other = "a" if key[place] != "a" else "b"
        assert not is_well_formed(key[:place] + other + key[place + 1 :])


@pytest.mark.parametrize("junk", ["", "afa_live_", "sk_live_abc", "afa_" + "0" * 26, "é" * 45])
def test_junk_is_no_key(junk: str) -> None:
    assert not is_well_formed(junk)
    assert not is_well_formed(new_key() + junk + "x")


def test_asset_ids_never_look_like_keys() -> None:
    assert not is_well_formed("afa_01m7yzv3vnadd1bs722pbn9edv")


@pytest.mark.parametrize("owner", ["bob", "Ann-1", "a@example.org", "x" * 63])
def test_owners(owner: str) -> None:
    assert check_owner(owner) == owner


@pytest.mark.parametrize("owner", ["", "-bob", "a b", "test~bob", "a:b", "x" * 64, "bob\n"])
def test_bad_owners(owner: str) -> None:
    with pytest.raises(ValueError, match="owner must match"):
        check_owner(owner)
