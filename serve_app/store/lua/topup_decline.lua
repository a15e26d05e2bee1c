-- uses: clock ledger topup
-- Close an intent whose charge was declined; after too many, switch automatic top-up off.
-- KEYS: balance, journal, topup, intents. ARGV: account, intent id, failures allowed, why.
-- Answers failures so far, or -1: not open.
local f = redis.call('HMGET', KEYS[3], 'intent', 'iprice')
if f[1] ~= ARGV[2] then return -1 end
load_account(redis.call('GET', KEYS[1]))
roll(ARGV[1], KEYS[2], now_ms(), -1)
local spent = spent_this_month(KEYS[3], A.per) - tonumber(f[2])
redis.call('HSET', KEYS[3], 'spent', spent)
redis.call('HDEL', KEYS[3], 'intent', 'sent', 'iprice', 'ipack')
redis.call('ZREM', KEYS[4], ARGV[1])
local fails = redis.call('HINCRBY', KEYS[3], 'fails', 1)
if fails >= tonumber(ARGV[3]) then
  A.th = -1
  redis.call('HSET', KEYS[3], 'on', 0, 'off', ARGV[4])
end
redis.call('SET', KEYS[1], packed_account())
return fails
