"""What an archive adds up to if an id is used again."""

import pytest

from serve_app.domain.credits import JournalEntry
from serve_app.ledger.archive.export import until_marks
from serve_app.ledger.archive.fold import Fold
from serve_app.ledger.archive.segments import Segment
from serve_app.ledger.ended_holds import KEPT_MS
from serve_app.ledger.journal import Call
from serve_app.ledger.packed import ACCOUNT, NO_ACCOUNT, HoldState, pack_hold, unpack_account
from serve_app.store.keys import join_member
from tests.store.setting import ACCOUNT as OWNER

MEMBER = join_member(OWNER, "track:x:0-2")
ENDED = pack_hold(HoldState("committed", 10, 10, 10, 0, 0, 0, "print"))
HELD = pack_hold(HoldState("held", 10, 0, 10, 0, 0, 0, "print"))


@pytest.mark.parametrize("after_ms", [1, KEPT_MS, KEPT_MS + 1])
def test_a_hold_that_begins_under_an_id_that_had_ended_stays_open(after_ms: int) -> None:
    """The first hold was forgotten, or lost in a failover."""
    fold, at_ms = Fold(), 1000 + after_ms
    fold.add(Call("1000-0", [], {}, {MEMBER: ENDED}))
    fold.add(Call(f"{at_ms}-0", [], {}, {MEMBER: HELD}, {MEMBER: at_ms + 5}))
    fold.add(Call(f"{at_ms + 2 * KEPT_MS}-0", []))
    assert (fold.holds, dict(fold.ended)) == ({MEMBER: HELD}, {})
    assert fold.deadlines == {MEMBER: at_ms + 5}


def test_an_id_that_ended_twice_is_forgotten_once_after_its_last_end() -> None:
    fold = Fold()
    fold.add(Call("1000-0", [], {}, {MEMBER: ENDED}))
    fold.add(Call("3000-0", [], {}, {MEMBER: ENDED}))
    fold.add(Call(f"{2000 + KEPT_MS}-0", []))
    assert (fold.holds, dict(fold.ended)) == ({MEMBER: ENDED}, {MEMBER: 3000})
    fold.add(Call(f"{3000 + KEPT_MS}-0", []))
    assert (fold.holds, dict(fold.ended)) == ({}, {})


def test_what_is_held_is_compared_with_the_open_holds() -> None:
    fold = Fold()
    state = unpack_account(NO_ACCOUNT)._replace(journal_length=1, grant=-10, held=10)
    entry = JournalEntry(OWNER, 1, "reserve", "track:x:0-2", -10, 0, 0)
    fold.add(Call("1000-0", [entry], {OWNER: ACCOUNT.pack(*state)}))
    assert fold.problems() == [f"{OWNER}: 10 are held, its open holds come to 0"]
    fold.add(Call("1001-0", [], {}, {MEMBER: HELD}, {MEMBER: 5}))
    assert fold.problems() == []


def test_a_backup_takes_every_segment_of_which_the_ledger_knows_a_call() -> None:
    """An unfinished trim has marked a call within a segment."""
    first, second, third = (
        Segment("c000", number, f"{number}0-0", f"{number}5-0") for number in (1, 2, 3)
    )
    listed = [first, second, third]
    assert until_marks(listed, ("23-0", "15-0")) == [first, second]
    assert until_marks(listed, ("15-0", "")) == [first]
    assert until_marks(listed, ("", "")) == []
