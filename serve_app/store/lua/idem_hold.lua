-- Hold an idempotency key for longer while its request runs. KEYS: record. ARGV: fingerprint, ttl ms
-- from now, 0 to forget it. Answers 0 when it was answered, or another request has the key now.
local f = redis.call('HMGET', KEYS[1], 'fp', 'status')
if f[1] ~= ARGV[1] or f[2] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
