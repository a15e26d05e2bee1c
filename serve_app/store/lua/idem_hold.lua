-- Hold an idempotency key longer while its request runs. KEYS: record. ARGV: fingerprint, ttl ms from
-- now or 0 to forget it. Answers 0 if the request was answered, or another one has the key now.
local f = redis.call('HMGET', KEYS[1], 'fp', 'status')
if f[1] ~= ARGV[1] or f[2] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
