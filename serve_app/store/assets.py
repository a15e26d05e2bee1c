"""Records of assets in the ledger role.

Invariant: a record is gone the moment it expires; ``due`` lists its bytes until they are deleted,
so none are forgotten.
"""

from collections.abc import Collection
from dataclasses import replace

from serve_app.domain.assets import AssetRecord, NewAsset, asset_object_key, parse_object_key
from serve_app.domain.errors import PayloadTooLargeError, ServiceUnavailableError
from serve_app.store.client import Store, from_ms
from serve_app.store.keys import join_member, split_member

SWEEP_BATCH = 200


class Assets:
    """The assets of all owners."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, asset: NewAsset) -> AssetRecord:
        """Write the record, or return the one that its owner already has for the same bytes.

        Raises:
            PayloadTooLargeError: It would exceed the owner's quota.
            ServiceUnavailableError: Redis is unavailable, or that record has just expired.
        """
        owner, track = asset.owner, asset.track or ""
        word, *rest = await self._store.run(
            "asset_put",
            [
                self._store.keys.asset(owner, "r", asset.asset_id),
                self._store.keys.asset(owner, "s", asset.sha256),
                self._store.keys.asset(owner, "i"),
                self._store.keys.asset_due(self._store.keys.tag(owner)),
                *self._usage_keys(owner),
                self._store.keys.asset(owner, "t", track),
            ],
            [
                *(owner, asset.asset_id, asset.sha256, asset.size_bytes, asset.content_type),
                *(asset.lifetime_s * 1000, track, asset.quota_bytes),
            ],
        )
        if word == b"DUP":
            known = await self.get(owner, rest[0].decode())
            if known is None:
                raise ServiceUnavailableError("the asset has just expired; upload it again")
            return known
        if word == b"FULL":
            raise PayloadTooLargeError(over_quota(asset, *rest))
        created, expires = rest
        return AssetRecord(
            asset_id=asset.asset_id,
            owner=owner,
            sha256=asset.sha256,
            size_bytes=asset.size_bytes,
            content_type=asset.content_type,
            created_at=from_ms(created),
            expires_at=from_ms(expires),
            track=asset.track,
        )

    def _usage_keys(self, owner: str) -> tuple[str, str]:
        return self._store.keys.asset(owner, "e"), self._store.keys.asset(owner, "b")

    async def stored_bytes(self, owner: str) -> int:
        """Return how many bytes the owner's unexpired assets have; identical bytes count once."""
        return int(await self._store.run("asset_usage", [*self._usage_keys(owner)], []))

    async def get(self, owner: str, asset_id: str) -> AssetRecord | None:
        """Read a record; None if it has expired, is another owner's or was never written."""
        return (await self._read(owner, [asset_id]))[0]

    async def _read(self, owner: str, asset_ids: Collection[str]) -> list[AssetRecord | None]:
        fields = ("sha256", "size", "type", "created", "expires", "track")
        reads = [
            ("HMGET", self._store.keys.asset(owner, "r", asset_id), *fields)
            for asset_id in asset_ids
        ]
        # For one record the time limit is that of one call, since a request waits for it.
        one = len(reads) == 1
        rows = [await self._store.command(*reads[0])] if one else await self._store.batch(reads)
        records: list[AssetRecord | None] = []
        for asset_id, (sha256, size, kind, created, expires, track) in zip(
            asset_ids, rows, strict=True
        ):
            if sha256 is None:
                records.append(None)
                continue
            record = AssetRecord(
                asset_id=asset_id,
                owner=owner,
                sha256=sha256.decode(),
                size_bytes=int(size),
                content_type=kind.decode(),
                created_at=from_ms(int(created)),
                expires_at=from_ms(int(expires)),
            )
            records.append(replace(record, track=track.decode()) if track else record)
        return records

    async def delete(self, asset: AssetRecord) -> bool:
        """Delete an asset before it expires and make its bytes due; return whether it existed."""
        keys = self._store.keys
        done = await self._store.run(
            "asset_delete",
            [
                keys.asset(asset.owner, "r", asset.asset_id),
                keys.asset(asset.owner, "s", asset.sha256),
                keys.asset(asset.owner, "i"),
                keys.asset_due(keys.tag(asset.owner)),
                *self._usage_keys(asset.owner),
            ],
            [asset.owner, asset.asset_id],
        )
        return bool(done)

    async def page(self, owner: str, limit: int, cursor: str | None) -> list[AssetRecord]:
        """Return up to ``limit`` records older than ``cursor``, newest first.

        The cursor is only a position: any well-formed id will do, even a foreign or expired one.
        """
        found: list[AssetRecord] = []
        below = "+" if cursor is None else f"({cursor}"
        while len(found) < limit:
            ids = await self._store.command(
                *("ZREVRANGEBYLEX", self._store.keys.asset(owner, "i"), below, "-"),
                *("LIMIT", 0, limit - len(found)),
            )
            if not ids:
                break
            names = [raw.decode() for raw in ids]
            found += [record for record in await self._read(owner, names) if record is not None]
            below = f"({names[-1]}"
        return found

    async def of_track(self, owner: str, track: str) -> AssetRecord | None:
        """Return the asset that its owner linked to a recording."""
        found = await self._store.command("GET", self._store.keys.asset(owner, "t", track))
        return None if found is None else await self.get(owner, found.decode())

    async def due(self) -> list[tuple[str, str]]:
        """Return the owner and id of expired assets whose bytes are still to be deleted."""
        seconds, micros = await self._store.command("TIME")
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        keys = self._store.keys
        found = await self._store.ask(
            [keys.asset_due(keys.shard_tag(shard)) for shard in range(keys.shards)],
            *("ZRANGEBYSCORE", "-inf", now_ms, "LIMIT", 0, SWEEP_BATCH),
        )
        pairs = [split_member(raw) for members in found.values() for raw in members]
        return [(owner, asset_id) for owner, asset_id in pairs]

    async def forget(self, owner: str, asset_id: str) -> None:
        """Drop an expired asset from the indexes, once its bytes are deleted."""
        await self._store.batch(
            [
                ("ZREM", self._store.keys.asset(owner, "i"), asset_id),
                (
                    "ZREM",
                    self._store.keys.asset_due(self._store.keys.tag(owner)),
                    join_member(owner, asset_id),
                ),
            ]
        )

    async def referenced(self, keys: Collection[str]) -> Collection[str]:
        """Return which of these object keys belong to an unexpired record; see `KeepCheck`."""
        pairs = [parse_object_key(key) for key in keys]
        living = await self._store.batch(
            [("EXISTS", self._store.keys.asset(owner, "r", asset_id)) for owner, asset_id in pairs]
        )
        return [
            asset_object_key(owner, asset_id)
            for (owner, asset_id), exists in zip(pairs, living, strict=True)
            if exists
        ]


def over_quota(asset: NewAsset, stored_bytes: int, expires_in_ms: int) -> str:
    """Say why an asset is not accepted, and when there will be more room."""
    text = (
        f"your assets have {stored_bytes} bytes and this one {asset.size_bytes}; your tier keeps "
        f"{asset.quota_bytes} in all"
    )
    if not stored_bytes:
        return text
    return f"{text}; wait for assets to expire, the next one does in {-(-expires_in_ms // 1000)} s"
