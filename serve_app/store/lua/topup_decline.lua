-- uses: clock ledger
-- Close an intent whose charge was declined; after too many, switch automatic top-up off.
-- KEYS: balance, journal, topup, intents. ARGV: account, intent id, failures allowed, why.
-- Answers failures so far, or -1: not open.
local f = redis.call('HMGET', KEYS[3], 'intent', 'iprice', 'spent')
if f[1] ~= ARGV[2] then return -1 end
redis.call('HSET', KEYS[3], 'spent', math.max(0, tonumber(f[3]) - tonumber(f[2])))
redis.call('HDEL', KEYS[3], 'intent', 'sent', 'iprice', 'ipack')
redis.call('ZREM', KEYS[4], ARGV[1])
local fails = redis.call('HINCRBY', KEYS[3], 'fails', 1)
if fails >= tonumber(ARGV[3]) then
  load_account(redis.call('GET', KEYS[1]))
  roll(ARGV[1], KEYS[2], now_ms(), -1)
  A.th = -1
  redis.call('SET', KEYS[1], packed_account())
  redis.call('HSET', KEYS[3], 'on', 0, 'off', ARGV[4])
end
return fails
