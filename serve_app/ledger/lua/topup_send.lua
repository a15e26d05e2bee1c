-- Mark an open intent as sent, before its first charge. KEYS: topup. ARGV: intent id.
-- Answers {was sent before 0|1, price, credits} or {}: not open.
local f = redis.call('HMGET', KEYS[1], 'intent', 'sent', 'iprice', 'ipack')
if f[1] ~= ARGV[1] then return {} end
redis.call('HSET', KEYS[1], 'sent', 1)
return {tonumber(f[2]), tonumber(f[3]), tonumber(f[4])}
