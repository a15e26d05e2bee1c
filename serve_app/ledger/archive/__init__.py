"""The archive of the journal: writing it, reading it, and restoring a ledger from it."""
