-- uses: clock calendar ledger topup
-- Close an intent whose charge was declined; after too many, switch automatic top-up off.
-- KEYS: balance, topup, intents, journal. ARGV: account, intent id, failures allowed, why.
-- Answers failures so far, or -1 if the intent is not open.
local f = redis.call('HMGET', KEYS[2], 'intent', 'iprice')
if f[1] ~= ARGV[2] then return -1 end
redis.call('HINCRBY', KEYS[2], 'spent', '-' .. f[2])
redis.call('HDEL', KEYS[2], 'intent', 'sent', 'iprice', 'ipack')
redis.call('ZREM', KEYS[3], ARGV[1])
local fails = redis.call('HINCRBY', KEYS[2], 'fails', 1)
if fails >= tonumber(ARGV[3]) then
  local A = open_account(ARGV[1], redis.call('GET', KEYS[1]), KEYS[1], nil, KEYS[4])
  A.topup_threshold = -1
  close_account(A)
  redis.call('HSET', KEYS[2], 'on', 0, 'off', ARGV[4])
end
keep_topup(shard_of(KEYS[4]), KEYS[2], ARGV[1])
write_all()
return fails
