-- uses: history
-- Tell the history of writes of the server that has a key. KEYS: any key. Answers its id or ''.
return history() or ''
