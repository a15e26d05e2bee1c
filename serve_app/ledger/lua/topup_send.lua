-- uses: clock calendar ledger topup
-- Mark an open intent as sent, before its first charge. KEYS: topup, journal.
-- ARGV: account, intent id.
-- Answers {was sent before 0|1, price, credits}, or {} if the intent is not open.
local f = redis.call('HMGET', KEYS[1], 'intent', 'sent', 'iprice', 'ipack')
if f[1] ~= ARGV[2] then return {} end
redis.call('HSET', KEYS[1], 'sent', 1)
keep_topup(shard_of(KEYS[2]), KEYS[1], ARGV[1])
write_all()
return {tonumber(f[2]), tonumber(f[3]), tonumber(f[4])}
