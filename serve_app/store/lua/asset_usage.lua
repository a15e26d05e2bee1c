-- uses: clock quota
-- Return how many bytes an owner's assets have. KEYS: expiries, total.
return stored_bytes(KEYS[1], KEYS[2], now_ms())
