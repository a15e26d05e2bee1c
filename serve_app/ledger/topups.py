"""Automatic top-up: settings, open intents, and their ends.

Invariant: an account has at most one open intent, an intent keeps its id for ever, and the month's
charges and open intents never exceed the cap.
"""

from dataclasses import astuple

from serve_app.domain.credits import MOST_CREDITS, Balance, TooManyCreditsError
from serve_app.domain.payments import PaymentIntent, TopupSettings, TopupStatus
from serve_app.ledger.ledger import Ledger, check_id
from serve_app.store.client import Store, from_ms

FAILURES_ALLOWED = 3
DECLINED_MESSAGE = "the last three charges were declined"
SWITCHED_OFF_MESSAGE = "switched off by the customer"
INTENTS_BATCH = 100


def opened_at(intent_id: str) -> int:
    """Return when an intent was opened, in Unix milliseconds; 0 for intents of release 0.1."""
    *_, moment, _ = intent_id.split("_")
    return int(moment) if moment.isdecimal() else 0


class Topups:
    """The intents that the reserve scripts open."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger

    async def enable(self, account: str, settings: TopupSettings) -> None:
        """Switch automatic top-up on, or change its settings.

        Raises:
            TooManyCreditsError: One of the amounts is too large.
        """
        if max(astuple(settings)) > MOST_CREDITS:
            raise TooManyCreditsError(
                f"threshold, pack, price and cap are at most {MOST_CREDITS} each"
            )
        await self._set(
            account,
            [
                *(1, settings.threshold, settings.pack_credits),
                *(settings.price_minor, settings.cap_minor, ""),
            ],
        )

    async def disable(self, account: str, reason: str = SWITCHED_OFF_MESSAGE) -> None:
        """Switch automatic top-up off; an intent that is open is still completed."""
        await self._set(account, [0, -1, 0, 0, 0, reason])

    async def _set(self, account: str, args: list[str | int]) -> None:
        keys = self._store.keys
        await self._store.run(
            "topup_set",
            [keys.balance(check_id(account)), keys.topup(account), self._journal(account)],
            [account, *args],
        )

    def _journal(self, account: str) -> str:
        keys = self._store.keys
        return keys.shard(keys.tag(account), "j")

    async def status(self, account: str) -> TopupStatus | None:
        """Return settings and state; None if automatic top-up was never set up."""
        names = ("th", "pack", "price", "cap", "on", "intent", "fails", "off")
        counts = ("month", "spent", "iprice")
        key = self._store.keys.topup(account)
        values = await self._store.command("HMGET", key, *names, *counts)
        th, pack, price, cap, is_on, intent, fails, off, month, spent, open_price = values
        if th is None:
            return None
        if month != f"{from_ms(await self._store.now_ms()):%Y%m}".encode():
            spent = open_price  # the stored sum is another month's; an open charge is carried over
        return TopupStatus(
            settings=TopupSettings(int(th), int(pack), int(price), int(cap)),
            is_enabled=is_on == b"1",
            spent_minor=int(spent or 0),
            open_intent=intent.decode() if intent is not None else None,
            failures=int(fails or 0),
            off_reason=off.decode() if off is not None else None,
        )

    async def open_intents(self) -> list[PaymentIntent]:
        """Return the open intents of all accounts, oldest first within a shard."""
        keys = self._store.keys
        tags = [keys.shard_tag(shard) for shard in range(keys.shards)]
        found = await self._store.ask(
            [keys.shard(tag, "intents") for tag in tags], "ZRANGE", 0, INTENTS_BATCH - 1
        )
        accounts = [raw.decode() for members in found.values() for raw in members]
        rows = await self._store.batch(
            [
                ("HMGET", keys.topup(account), "intent", "sent", "iprice", "ipack")
                for account in accounts
            ]
        )
        return [
            PaymentIntent(intent.decode(), account, int(pack), int(price), sent == b"1")
            for account, (intent, sent, price, pack) in zip(accounts, rows, strict=True)
            if intent is not None
        ]

    async def mark_sent(self, intent: PaymentIntent) -> bool | None:
        """Note that the charge is about to be made; return whether it was noted before.

        Returns:
            None if the intent is no longer open.
        """
        reply = await self._store.run(
            "topup_send",
            [self._store.keys.topup(intent.account), self._journal(intent.account)],
            [intent.account, intent.intent_id],
        )
        return bool(reply[0]) if reply else None

    async def succeed(self, intent: PaymentIntent) -> Balance:
        """Book a paid intent, once, and close it."""
        return await self._ledger.topup(intent.account, intent.intent_id, intent.credits)

    async def decline(self, intent: PaymentIntent) -> int:
        """Close an intent whose charge was declined; return how many in a row were declined."""
        keys, account = self._store.keys, intent.account
        return int(
            await self._store.run(
                "topup_decline",
                [keys.balance(account), *keys.funding(account), self._journal(account)],
                [account, intent.intent_id, FAILURES_ALLOWED, DECLINED_MESSAGE],
            )
        )
