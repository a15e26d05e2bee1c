"""Every Redis key, built in one place.

``{cNN}`` is the shard of an account, ``crc16(account) % shards``: all that one script changes is in
one slot of a Redis Cluster. The owner is part of the key, so a foreign id is simply absent.

=========================== ====== ==================================== ===================
key                         type   holds                                lifetime
=========================== ====== ==================================== ===================
cr:{cNN}:a:<acct>           string balance, packed: lua/lib/ledger.lua  for ever
cr:{cNN}:r:<acct>:<id>      string hold: state, cost, final, split      48 h after its export;
                                                                        a free hit's 10 min
cr:{cNN}:e                  list   ended holds that were exported       until forgotten
cr:{cNN}:p:<acct>:<id>      string payment, grant or adjustment seen    400 d
cr:{cNN}:t:<acct>           hash   automatic top-up                     for ever
cr:{cNN}:due                zset   open holds by deadline               for ever
cr:{cNN}:intents            zset   accounts with an open intent         for ever
cr:{cNN}:j                  stream journal, append-only                 until exported
cr:{cNN}:jb                 hash   sums of the exported journal         for ever
cr:{cNN}:latest             string latest time at which months begin    for ever
cr:{cNN}:lost               string a failover lost exported entries     10 min, or reconciled
cr:{cNN}:compared           string replication id of the server last    for ever
                                   compared with the archive
cr:{cNN}:trial              -      nothing: trial writes name it        never written
cr:beginning                string lock for beginning an archive        300 s
cr:shards                   string number of shards                     for ever
cr:format                   string version of these formats             for ever
cr:pepper                   string hash of the service's key pepper     for ever
job:{cNN}:<acct>:<id>       hash   job record and result                tier's asset life
job:{cNN}:open              zset   unfinished jobs by next check:       for ever
                                   outbox, leases and time limits
job:{cNN}:dead              list   jobs whose every attempt was lost    last 1,000
jobs:{cNN}:<acct>           zset   jobs the owner may list, by creation for ever
wh:{cNN}:a:<acct>           hash   webhook registration                 for ever
wh:{cNN}:due                zset   deliveries by next attempt           until delivered
wh:{cNN}:tries              hash   attempts of open deliveries          until delivered
own:{cNN}:<owner>           hash   tier of an owner                     for ever
own:{cNN}:<owner>:keys      hash   key id to look-up hash               for ever
key:<hash>                  hash   API key record                       for ever
kid:<key id>                string owner and look-up hash of a key      for ever
{lanes}:*                   …      queue hints: lua/lib/lanes.lua       for ever
{fetches}:*                 …      the same for jobs by address         for ever
as:{cNN}:r:<owner>:<asset>  hash   asset record                         tier's asset life
as:{cNN}:s:<owner>:<sha256> string asset id of those bytes              tier's asset life
as:{cNN}:t:<owner>:<track>  string asset id of that recording           tier's asset life
as:{cNN}:i:<owner>          zset   asset ids, score 0                   for ever
as:{cNN}:e:<owner>          zset   assets with sizes, by expiry         for ever
as:{cNN}:b:<owner>          string sum of those sizes, in bytes         for ever
as:{cNN}:due                zset   owner and asset by expiry            for ever
{models}:*                  …      which checkpoints serve:             for ever
                                   checkpoints/choices.py
idem:{cNN}:<owner>:<key>    hash   answer to an Idempotency-Key         24 h; none yet: 15 s
life:idem:{cNN}:<owner>:…   string what its charges are named after     24 h
spend:<provider>:<month>    string billed calls to a provider           40 d
rl:… turn:… slot:… c:… lock …      cache role: rates, slots, values     varies
=========================== ====== ==================================== ===================
"""

import binascii

DEFAULT_SHARDS = 256
LANES = "{lanes}:"
FETCHES = "{fetches}:"
SHARDS_KEY = "cr:shards"
FORMAT_KEY = "cr:format"
PEPPER_KEY = "cr:pepper"
BEGINNING_KEY = "cr:beginning"
HALF_RESTORED = "half-restored"
"""Replaces the format until `afa restore` or `afa ledger restore` is done."""

MODELS = "{models}:"
KEY_EVENTS = "afa-key-events"
JOB_EVENTS = "afa-job-events"
SEPARATOR = "\x1f"


class Keyspace:
    """Builds keys; the number of shards is fixed for the life of the data."""

    def __init__(self, shards: int = DEFAULT_SHARDS) -> None:
        if not 1 <= shards <= 999:
            raise ValueError(f"shards must be 1 to 999, not {shards}")
        self.shards = shards

    def shard_of(self, account: str) -> int:
        """Return the shard of an account (CRC-16/XMODEM, the one of Redis Cluster)."""
        return binascii.crc_hqx(account.encode(), 0) % self.shards

    def tag(self, account: str) -> str:
        """Return the hash tag of an account."""
        return self.shard_tag(self.shard_of(account))

    @staticmethod
    def shard_tag(shard: int) -> str:
        """Return the hash tag of a shard."""
        return f"{{c{shard:03d}}}"

    def balance(self, account: str) -> str:
        """Key of an account's balance."""
        return f"cr:{self.tag(account)}:a:{account}"

    def hold(self, account: str, hold_id: str) -> str:
        """Key of one hold."""
        return f"cr:{self.tag(account)}:r:{account}:{hold_id}"

    def payment(self, account: str, payment_id: str) -> str:
        """Key of one top-up, grant or adjustment."""
        return f"cr:{self.tag(account)}:p:{account}:{payment_id}"

    def topup(self, account: str) -> str:
        """Key of an account's automatic top-up."""
        return f"cr:{self.tag(account)}:t:{account}"

    def shard(self, tag: str, name: str) -> str:
        """Key of one of a shard's indexes: due, intents, e, j, jb."""
        return f"cr:{tag}:{name}"

    def money(self, account: str, hold_id: str) -> list[str]:
        """Keys of a script that ends one hold: balance, hold, due, journal."""
        tag = self.tag(account)
        return [
            f"cr:{tag}:a:{account}",
            f"cr:{tag}:r:{account}:{hold_id}",
            f"cr:{tag}:due",
            f"cr:{tag}:j",
        ]

    def hold_operations(self, account: str) -> list[str]:
        """Keys of an account for operations on its holds: balance, due, journal, topup, intents."""
        tag = self.tag(account)
        return [
            *(f"cr:{tag}:a:{account}", f"cr:{tag}:due", f"cr:{tag}:j"),
            *(f"cr:{tag}:t:{account}", f"cr:{tag}:intents"),
        ]

    def funding(self, account: str) -> list[str]:
        """Keys of automatic top-up: settings, open intents."""
        tag = self.tag(account)
        return [f"cr:{tag}:t:{account}", f"cr:{tag}:intents"]

    def job(self, account: str, job_id: str) -> str:
        """Key of a job record."""
        return f"job:{self.tag(account)}:{account}:{job_id}"

    def job_list(self, account: str) -> str:
        """Key of the jobs that an account may list."""
        return f"jobs:{self.tag(account)}:{account}"

    def job_index(self, tag: str, name: str) -> str:
        """Key of one of a shard's job indexes: open, dead."""
        return f"job:{tag}:{name}"

    def webhook(self, account: str) -> str:
        """Key of an account's webhook registration."""
        return f"wh:{self.tag(account)}:a:{account}"

    def webhook_index(self, tag: str, name: str) -> str:
        """Key of one of a shard's delivery indexes: due, tries."""
        return f"wh:{tag}:{name}"

    def owner(self, owner: str) -> str:
        """Key of an owner's record."""
        return f"own:{self.tag(owner)}:{owner}"

    any_owner = "own:*"
    """Pattern of `owner` and `owner_keys` for all owners."""

    def owner_keys(self, owner: str) -> str:
        """Key of the list of an owner's API keys."""
        return f"own:{self.tag(owner)}:{owner}:keys"

    @staticmethod
    def api_key(digest: str) -> str:
        """Key of an API key's record."""
        return f"key:{digest}"

    @staticmethod
    def api_key_id(key_id: str) -> str:
        """Key of an API key's owner and hash, by key id."""
        return f"kid:{key_id}"

    def asset(self, owner: str, kind: str, name: str | None = None) -> str:
        """Key of one of an owner's assets by r, s or t, or of index i, expiries e, bytes b."""
        key = f"as:{self.tag(owner)}:{kind}:{owner}"
        return key if name is None else f"{key}:{name}"

    @staticmethod
    def asset_due(tag: str) -> str:
        """Key of a shard's assets by expiry."""
        return f"as:{tag}:due"

    def idempotency(self, owner: str, key: str) -> str:
        """Key of one remembered answer."""
        return f"idem:{self.tag(owner)}:{owner}:{key}"


def lane_key(name: str, space: str = LANES) -> str:
    """Key of one of the lanes' structures; all of a space are in one slot."""
    return space + name


def models_key(name: str) -> str:
    """Key of one of the structures that say which checkpoints serve; all are in one slot."""
    return MODELS + name


def join_member(*parts: str) -> str:
    """Join the parts of a sorted-set member."""
    return SEPARATOR.join(parts)


def split_member(raw: bytes) -> list[str]:
    """Split a sorted-set member into its parts."""
    return raw.decode().split(SEPARATOR)
