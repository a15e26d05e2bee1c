"""Credits in Redis: holds that end exactly once, grants, packs, grace and look-up allowance.

Invariant: the balance of an account is the sum of its journal, and every id moves credits once.
"""

import asyncio
import json
import re
import uuid
from collections.abc import Sequence
from typing import Literal

from serve_app.domain.credits import (
    MOST_CREDITS,
    Balance,
    Charge,
    HoldClosedError,
    HoldMismatchError,
    Payer,
    TooManyCreditsError,
)
from serve_app.domain.errors import InsufficientCreditsError
from serve_app.domain.telemetry.metrics import count_charged
from serve_app.domain.tiers import Tiers
from serve_app.ledger.hold_operations import (
    COMMIT,
    HIT,
    MOST_OPERATIONS,
    REAP,
    RESERVE,
    VOID,
    HoldOperation,
    HoldOperations,
)
from serve_app.ledger.packed import parse_balance, unpack_hold
from serve_app.store.client import Args, Store
from serve_app.store.keys import split_member

ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@~-]{0,199}")
DEFAULT_HOLD_TTL_S = 300
PAYMENT_ID_KEPT_MS = 400 * 24 * 3600 * 1000
REAP_BATCH = 200
# Below the client's time limit, so that there is an answer that says what is missing.
REPLICA_WAIT_MS = 500

OverAllowance = Literal["charge", "reject"]


def check_id(text: str) -> str:
    """Return ``text`` if it is a valid id of an account, hold, job or payment.

    Raises:
        ValueError: It is not.
    """
    if ID_PATTERN.fullmatch(text) is None:
        raise ValueError(f"ids must match {ID_PATTERN.pattern}, not {text!r}")
    return text


def no_funds(cost: int, balance: Balance) -> InsufficientCreditsError:
    """Return the error that says what was needed and what is available."""
    needed = "1 credit" if cost == 1 else f"{cost} credits"
    return InsufficientCreditsError(
        f"this needs {needed} and {balance.remaining} remain; "
        f"buy a pack, or wait for the monthly grant on {balance.period_ends:%Y-%m-%d} UTC"
    )


class Ledger:
    """Moves credits; each method is one operation, idempotent on its id."""

    def __init__(
        self,
        store: Store,
        tiers: Tiers,
        *,
        over_allowance: OverAllowance = "charge",
        hit_price: int = 1,
        topup_replicas: int = 0,
    ) -> None:
        """Use ``store``.

        Args:
            store: The ledger role.
            tiers: The tiers' grants, graces and allowances.
            over_allowance: What happens to a cache hit beyond the allowance.
            hit_price: Credits that such a hit costs.
            topup_replicas: Number of replicas that must have a payment before it is acknowledged.
        """
        self.store = store
        self._tiers = tiers
        self._hit_price = hit_price if over_allowance == "charge" else -1
        self._operations = HoldOperations(store)
        self._topup_replicas = topup_replicas

    async def reserve(
        self,
        payer: Payer,
        hold_id: str,
        cost: int,
        ttl_s: float = DEFAULT_HOLD_TTL_S,
        fingerprint: str = "",
    ) -> Balance:
        """Hold ``cost`` credits until commit, void, or ``ttl_s`` from now.

        Raises:
            InsufficientCreditsError: The credits do not suffice; nothing was held.
            HoldMismatchError: The id was used with another cost or fingerprint.
            HoldClosedError: The hold with that id has already ended.
            ServiceUnavailableError: The ledger is unavailable; a hold that was made is reaped.
        """
        account, tier = check_id(payer.account), self._tiers[payer.tier]
        answer, packed = await self._operations.do(
            HoldOperation(
                command=RESERVE,
                account=account,
                hold_id=check_id(hold_id),
                amount=cost,
                term=int(ttl_s * 1000),
                monthly=tier.monthly_credits,
                floor=tier.grace_credits,
                fingerprint=fingerprint,
            )
        )
        balance = parse_balance(account, packed)
        match answer.partition(":"):
            case ("OK", _, _) | ("DUP", _, "held"):
                return balance
            case ("NOFUNDS", _, _):
                raise no_funds(cost, balance)
            case ("DUP", _, state):
                raise HoldClosedError(hold_id, state)
        raise HoldMismatchError(f"hold {hold_id} exists with another cost or request")

    async def commit(self, account: str, hold_id: str, final_cost: int | None = None) -> Balance:
        """Charge a hold: all of it, or ``final_cost``, giving back the rest.

        Raises:
            HoldClosedError: It was voided, reaped, committed with another cost, or never existed.
            ServiceUnavailableError: The ledger is unavailable; the same call again settles it.
        """
        final = -1 if final_cost is None else final_cost
        return (await self._end(COMMIT, account, hold_id, final))[1]

    async def charge(self, account: str, hold_id: str, final_cost: int) -> Charge:
        """Commit a hold that others may commit too; its credits are 0 if one of them did before.

        Raises:
            HoldClosedError: As for `commit`.
            ServiceUnavailableError: As for `commit`.
        """
        answer, balance = await self._end(COMMIT, account, hold_id, final_cost)
        charged = final_cost if answer == "OK" else 0
        count_charged(charged)
        return Charge(charged, balance)

    async def void(self, account: str, hold_id: str) -> Balance:
        """Give a whole hold back.

        Raises:
            HoldClosedError: It was committed, reaped, or never existed.
            ServiceUnavailableError: The ledger is unavailable; the same call again settles it.
        """
        return (await self._end(VOID, account, hold_id))[1]

    async def hold_states(self, account: str, hold_ids: Sequence[str]) -> list[str | None]:
        """Return the states of holds; None for one that does not exist, or no longer does.

        Raises:
            ServiceUnavailableError: The ledger is unavailable.
        """
        names = [self.store.keys.hold(check_id(account), check_id(name)) for name in hold_ids]
        found = await self.store.command("MGET", *names)
        return [None if packed is None else unpack_hold(packed)[0] for packed in found]

    async def _end(
        self, command: bytes, account: str, hold_id: str, final: int = 0
    ) -> tuple[str, Balance]:
        operation = HoldOperation(command, check_id(account), check_id(hold_id), amount=final)
        text, packed = await self._operations.do(operation)
        answer, _, state = text.partition(":")
        if answer in ("OK", "DUP"):
            return answer, parse_balance(account, packed)
        if answer == "OVER":
            raise HoldMismatchError(f"hold {hold_id} is smaller than the final cost")
        raise HoldClosedError(hold_id, state or "missing")

    async def reap_due(self) -> int:
        """Give back holds whose deadline has passed; return how many. Call it every second."""
        keys, until = self.store.keys, await self.store.now_ms()
        found = await self.store.ask(
            [keys.shard(keys.shard_tag(shard), "due") for shard in range(keys.shards)],
            *("ZRANGEBYSCORE", "-inf", until, "LIMIT", 0, REAP_BATCH),
        )
        due = [split_member(raw) for members in found.values() for raw in members]
        reaped = 0
        for start in range(0, len(due), MOST_OPERATIONS):
            calls = (self.reap(*pair) for pair in due[start : start + MOST_OPERATIONS])
            reaped += sum(await asyncio.gather(*calls))
        return reaped

    async def reap(self, account: str, hold_id: str) -> bool:
        """Give one hold back if its deadline has passed; a job's hold is left to its job."""
        answer, _ = await self._operations.do(HoldOperation(REAP, account, hold_id))
        return answer == "OK"

    async def count_hit(
        self, account: str, tier: str, hits: int = 1, hit_id: str | None = None
    ) -> Charge:
        """Count cache hits, and charge those beyond the monthly allowance.

        Args:
            account: Account to charge.
            tier: Name of its tier.
            hits: Number of hits.
            hit_id: Makes the call idempotent; for ten minutes if the hits cost nothing.

        Raises:
            InsufficientCreditsError: Over the allowance, without credits or with charging off.
            ServiceUnavailableError: The ledger is unavailable.
        """
        row = self._tiers[tier]
        hit_id = check_id(hit_id or f"hit:{uuid.uuid4().hex}")
        text, packed = await self._operations.do(
            HoldOperation(
                command=HIT,
                account=check_id(account),
                hold_id=hit_id,
                amount=hits,
                term=row.cache_lookups,
                monthly=row.monthly_credits,
                floor=row.grace_credits,
                price=self._hit_price,
            )
        )
        answer, _, credits = text.partition(":")
        balance = parse_balance(account, packed)
        if answer == "OVER":
            raise InsufficientCreditsError(
                f"the monthly allowance of {row.cache_lookups} cache look-ups is used up"
            )
        if answer == "NOFUNDS":
            raise no_funds(hits * self._hit_price, balance)
        count_charged(int(credits))
        return Charge(int(credits), balance)

    async def balance(self, account: str, tier: str | None = None) -> Balance:
        """Return the account's current balance; with ``tier``, bring its grant up to date first.

        Raises:
            ServiceUnavailableError: The ledger is unavailable.
        """
        keys = self.store.keys
        packed = await self.store.run(
            "balance",
            [keys.balance(check_id(account)), keys.shard(keys.tag(account), "j")],
            [account, -1 if tier is None else self._tiers[tier].monthly_credits],
        )
        return parse_balance(account, packed)

    async def repair_period(self, account: str) -> bool:
        """Bring an account back from a month that has not begun; False if it is not in one."""
        keys = self.store.keys
        names = [keys.balance(check_id(account)), keys.shard(keys.tag(account), "j")]
        return bool(await self.store.run("period_repair", names, [account]))

    async def topup(self, account: str, payment_id: str, credits: int) -> Balance:
        """Add a paid pack, once per payment id.

        Raises:
            HoldMismatchError: The id was used for something else.
            TooManyCreditsError: It is too large, or the account would hold too many credits.
            ServiceUnavailableError: The ledger or a replica it needs is unavailable; call again.
        """
        return await self._credit("topup", account, payment_id, credits, "")

    async def grant(self, account: str, grant_id: str, credits: int) -> Balance:
        """Add to this month's grant, once per id; it ends with the month."""
        return await self._credit("bonus", account, grant_id, credits, "")

    async def adjust(
        self, account: str, adjust_id: str, credits: int, operator: str, reason: str
    ) -> Balance:
        """Correct an account by hand, up or down; the journal says who did it and why.

        Raises:
            InsufficientCreditsError: A downward correction by more than the account has.
        """
        why = json.dumps({"operator": operator, "reason": reason}, ensure_ascii=False)
        return await self._credit("adjust", account, adjust_id, credits, why)

    async def _credit(
        self, kind: str, account: str, entry_id: str, credits: int, why: str
    ) -> Balance:
        if credits == 0 or (credits < 0 and kind != "adjust"):
            raise ValueError("credits must be positive (an adjustment: not zero)")
        if credits > MOST_CREDITS:
            raise TooManyCreditsError(f"at most {MOST_CREDITS} credits at a time, not {credits}")
        status, packed = await self._send_credit(kind, account, entry_id, credits, why)
        if status == b"MISMATCH":
            raise HoldMismatchError(f"id {entry_id} was used for something else")
        balance = parse_balance(account, packed)
        if status == b"NOFUNDS":
            raise no_funds(-credits, balance)
        if status == b"FULL":
            raise TooManyCreditsError(
                f"{account} holds {balance.grant} of its grant, {balance.packs} in packs and "
                f"{balance.held} in open holds: with {credits} more it would have above "
                f"{MOST_CREDITS}"
            )
        return balance

    async def _send_credit(
        self, kind: str, account: str, entry_id: str, credits: int, why: str
    ) -> tuple[bytes, bytes]:
        names = self.store.keys
        keys = [
            names.balance(check_id(account)),
            names.payment(account, check_id(entry_id)),
            names.shard(names.tag(account), "j"),
            *names.funding(account),
        ]
        args: Args = [account, entry_id, kind, credits, -1, why, PAYMENT_ID_KEPT_MS, MOST_CREDITS]
        if self._topup_replicas:
            reply = await self.store.run_replicated(
                "credit", keys, args, self._topup_replicas, REPLICA_WAIT_MS
            )
        else:
            reply = await self.store.run("credit", keys, args)
        return reply[0], reply[1]
