-- uses: history
-- Return the replication id of the server that has a key. KEYS: any key. Answers the id or ''.
return history() or ''
