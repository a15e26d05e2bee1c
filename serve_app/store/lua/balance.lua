-- uses: clock ledger
-- Read an account, bringing its month up to date. KEYS: balance, journal.
-- ARGV: account, monthly grant or -1.
local raw = redis.call('GET', KEYS[1])
load_account(raw)
roll(ARGV[1], KEYS[2], now_ms(), tonumber(ARGV[2]))
local packed = packed_account()
if packed ~= raw then redis.call('SET', KEYS[1], packed) end
return {'OK', packed}
