"""API keys and the tiers of their owners.

Invariant: no key's text is stored, only its HMAC; a revoked key is refused within a second, and
within ``CACHE_S`` if messages are lost.
"""

import hashlib
import hmac
import logging
import time
from collections.abc import Iterable
from datetime import UTC, datetime

from serve_app.domain.keys import (
    SCOPES,
    TEST_NAMESPACE,
    Caller,
    IssuedKey,
    KeyInfo,
    check_owner,
    is_well_formed,
    new_key,
)
from serve_app.domain.tiers import SOLD, Tiers
from serve_app.domain.ulid import new_ulid
from serve_app.store.bus import Bus
from serve_app.store.client import Store, from_ms
from serve_app.store.keys import KEY_EVENTS, PEPPER_KEY

logger = logging.getLogger(__name__)

CACHE_S = 30.0
CACHE_SIZE = 10_000
DEFAULT_OVERLAP_S = 24 * 3600
LONGEST_OVERLAP_S = 7 * 24 * 3600


class UnknownKeyError(LookupError):
    """There is no key with that id."""


class UnknownOwnerError(LookupError):
    """There is no owner with that name."""


class OtherPepperError(ValueError):
    """The service hashes keys with another pepper, and would refuse keys made here."""


class Accounts:
    """Issues, reads and ends API keys."""

    def __init__(
        self, store: Store, pepper: bytes | str, tiers: Tiers, bus: Bus | None = None
    ) -> None:
        self._store = store
        self._pepper = pepper.encode() if isinstance(pepper, str) else pepper
        self._tiers = tiers
        self._bus = bus or Bus(store)
        self._cache: dict[str, tuple[Caller, float]] = {}
        self._n_events = 0
        self._bus.listen(KEY_EVENTS, self._on_event)

    def _digest(self, key: str) -> str:
        return hmac.new(self._pepper, key.encode(), hashlib.sha256).hexdigest()

    async def note_pepper(self) -> None:
        """Note the hash of this service's pepper: no keys can be made with another one.

        Raises:
            ServiceUnavailableError: The ledger is unavailable.
        """
        digest = self._digest(PEPPER_KEY)
        before = await self._store.command("GET", PEPPER_KEY)
        await self._store.command("SET", PEPPER_KEY, digest)
        if before not in (None, digest.encode()):
            logger.warning("the key pepper has changed: earlier API keys and webhook secrets end")

    async def _refuse_other_pepper(self) -> None:
        noted = await self._store.command("GET", PEPPER_KEY)
        if noted not in (None, self._digest(PEPPER_KEY).encode()):
            raise OtherPepperError(
                "the service would refuse this key, as its pepper is another: name the service's "
                "folder with --data-dir, or set AFA_KEY_PEPPER as the service has it"
            )

    async def issue(
        self,
        owner: str,
        tier: str | None = None,
        *,
        test: bool = False,
        scopes: Iterable[str] = SCOPES,
    ) -> IssuedKey:
        """Make a key.

        Args:
            owner: Owner of the key; letters, digits and ``_.@-``.
            tier: Sets the owner's tier; None leaves it, or ``free`` for a new owner.
            test: Whether the key is for the owner's test namespace.
            scopes: What the key may do.

        Raises:
            ValueError: The owner, tier or a scope is invalid.
            OtherPepperError: See the class.
        """
        check_owner(owner)
        wanted = frozenset(scopes)
        if not wanted or not wanted <= SCOPES:
            raise ValueError(f"scopes must be some of {sorted(SCOPES)}, not {sorted(wanted)}")
        await self._refuse_other_pepper()
        if tier is not None:
            await self.set_tier(owner, tier)
        elif await self.tier_of(owner) is None:
            await self.set_tier(owner, "free")
        return await self._write(owner, test, wanted)

    async def _write(self, owner: str, test: bool, scopes: frozenset[str]) -> IssuedKey:
        key, key_id = new_key(test), f"key_{new_ulid()}"
        digest = self._digest(key)
        names = self._store.keys
        # The record is written last: the key does not work without it, and the rest does no harm.
        await self._store.command("HSET", names.owner_keys(owner), key_id, digest)
        await self._store.command("SET", names.api_key_id(key_id), f"{owner} {digest}")
        await self._store.command(
            *("HSET", names.api_key(digest), "owner", owner, "key_id", key_id),
            *("scopes", " ".join(sorted(scopes)), "test", int(test), "digest", digest),
            *("created", int(time.time() * 1000)),
        )
        return IssuedKey(key, key_id)

    async def authenticate(self, key: str) -> Caller | None:
        """Return whom a key belongs to; None if it is malformed, unknown, expired or revoked.

        Raises:
            ServiceUnavailableError: The ledger is unavailable and the key is not cached.
        """
        if not is_well_formed(key):
            return None
        digest = self._digest(key)
        known = self._cache.get(digest)
        if known is not None and known[1] > time.monotonic():
            return known[0]
        is_heard, n_events = await self._bus.ready(), self._n_events
        reply = await self._store.run("key_get", [self._store.keys.api_key(digest)])
        if not reply:
            self._cache.pop(digest, None)
            return None
        owner, key_id, scopes, test, stored, left_ms = reply
        if not hmac.compare_digest(stored, digest.encode()):
            return None
        name = owner.decode()
        is_test = test == b"1"
        space = TEST_NAMESPACE + name if is_test else name
        caller = Caller(
            key_id=key_id.decode(),
            owner=space,
            account=space,
            tier=await self.tier_of(name) or "free",
            scopes=frozenset(scopes.decode().split()),
            is_test=is_test,
        )
        # If a change was announced meanwhile, the record that was read is not cached.
        if is_heard and n_events == self._n_events:
            life_s = CACHE_S if left_ms < 0 else min(CACHE_S, left_ms / 1000)
            if len(self._cache) >= CACHE_SIZE:
                self._cache.clear()
            self._cache[digest] = (caller, time.monotonic() + life_s)
        return caller

    async def owners(self) -> list[str]:
        """Return the names of all owners, sorted; this scans every key of the store."""
        names = await self._store.names(self._store.keys.any_owner)
        # A name has no colon; a key with one more part is the owner's list of keys.
        return sorted(name.rpartition(":")[2] for name in names if name.count(":") == 2)

    async def tier_of(self, owner: str) -> str | None:
        """Return the name of an owner's tier; None for an unknown owner."""
        tier = await self._store.command("HGET", self._store.keys.owner(owner), "tier")
        return None if tier is None else str(tier.decode())

    async def require(self, account: str) -> None:
        """Check that an account is in use: its owner has been issued a key, or it has a balance.

        Raises:
            UnknownOwnerError: It is not in use.
        """
        owner, balance = account.removeprefix(TEST_NAMESPACE), self._store.keys.balance(account)
        if await self.tier_of(owner) is None and not await self._store.command("EXISTS", balance):
            raise UnknownOwnerError(
                f"there is no owner {owner}; `afa keys create` makes one, `afa keys list` shows all"
            )

    async def set_tier(self, owner: str, tier: str) -> None:
        """Move an owner to a tier, in the ledger too, by the same script.

        A higher monthly grant counts from the next charge on, a lower one from the next month. The
        account of the owner's test keys may be in another slot: it is moved first, and a repeated
        call moves it again.

        Raises:
            ValueError: There is no such tier.
        """
        try:
            row = self._tiers[tier]
        except KeyError as error:
            raise ValueError(f"there is no tier {tier!r}, but {', '.join(SOLD)}") from error
        names = self._store.keys
        record = names.owner(check_owner(owner))
        for account, more in ((TEST_NAMESPACE + owner, []), (owner, [record])):
            await self._store.run(
                "tier_set",
                [names.balance(account), names.shard(names.tag(account), "j"), *more],
                [account, row.monthly_credits, row.name],
            )
        await self._bus.publish(KEY_EVENTS, owner)

    async def rotate(self, key_id: str, overlap_s: float = DEFAULT_OVERLAP_S) -> IssuedKey:
        """Make the successor of a key; the old one keeps working for ``overlap_s``.

        Raises:
            UnknownKeyError: There is no such key.
            ValueError: It is revoked or expired, or the overlap is negative or above seven days.
            OtherPepperError: See the class.
        """
        if not 0 <= overlap_s <= LONGEST_OVERLAP_S:
            raise ValueError("the overlap must be 0 to 7 days")
        await self._refuse_other_pepper()
        owner, digest = await self._find(key_id)
        found = await self._store.run("key_get", [self._store.keys.api_key(digest)])
        if not found:
            raise ValueError(
                f"{key_id} is revoked or expired, and cannot be rotated; "
                f"`afa keys create {owner}` issues a new key"
            )
        _, _, scopes, is_test, *_ = found
        issued = await self._write(owner, is_test == b"1", frozenset(scopes.decode().split()))
        await self._end(owner, digest, overlap_s)
        return issued

    async def revoke(self, key_id: str) -> None:
        """Revoke a key now.

        Raises:
            UnknownKeyError: There is no such key.
        """
        await self._end(*await self._find(key_id), overlap_s=0)

    async def _find(self, key_id: str) -> tuple[str, str]:
        found = await self._store.command("GET", self._store.keys.api_key_id(key_id))
        if found is None:
            raise UnknownKeyError(f"there is no key {key_id}")
        owner, digest = found.decode().split()
        return owner, digest

    async def _end(self, owner: str, digest: str, overlap_s: float) -> None:
        await self._store.run(
            "key_end", [self._store.keys.api_key(digest)], [int(overlap_s * 1000)]
        )
        await self._bus.publish(KEY_EVENTS, owner)

    async def list(self, owner: str) -> list[KeyInfo]:
        """Return all keys of an owner, oldest first, including ended ones."""
        listed = await self._store.command("HGETALL", self._store.keys.owner_keys(owner))
        pairs = (
            listed.items()
            if isinstance(listed, dict)
            else zip(listed[::2], listed[1::2], strict=True)
        )
        infos, now = [], from_ms(await self._store.now_ms())
        for key_id, digest in sorted(pairs):
            scopes, test, created, not_after, revoked = await self._store.command(
                "HMGET",
                self._store.keys.api_key(digest.decode()),
                *("scopes", "test", "created", "not_after", "revoked"),
            )
            if scopes is not None:
                expires_at = from_ms(int(not_after)) if not_after is not None else None
                infos.append(
                    KeyInfo(
                        key_id=key_id.decode(),
                        owner=owner,
                        is_test=test == b"1",
                        scopes=frozenset(scopes.decode().split()),
                        created_at=datetime.fromtimestamp(int(created) / 1000, UTC),
                        expires_at=expires_at,
                        is_revoked=revoked is not None,
                        is_expired=expires_at is not None and expires_at <= now,
                    )
                )
        return infos

    def _on_event(self, owner: str | None) -> None:
        self._n_events += 1
        if owner is None:
            self._cache.clear()
            return
        spaces = (owner, TEST_NAMESPACE + owner)
        for digest, (caller, _) in list(self._cache.items()):
            if caller.owner in spaces:
                del self._cache[digest]

    async def close(self) -> None:
        """Stop listening for changes."""
        await self._bus.close()
