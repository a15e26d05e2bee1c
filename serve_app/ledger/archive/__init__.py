"""The archive of the journal: writing it, reading it, and bringing a ledger back from it."""
