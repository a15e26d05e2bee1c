-- Take an idempotency key, or return what is known about it. KEYS: record. ARGV: fingerprint, ttl ms
-- of a request in flight.
-- Answers {'FRESH'} | {'MISMATCH'} | {'IN_FLIGHT'} | {'REPLAY', status, headers, body}.
local f = redis.call('HMGET', KEYS[1], 'fp', 'status', 'headers', 'body')
if not f[1] then
  redis.call('HSET', KEYS[1], 'fp', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {'FRESH'}
end
if f[1] ~= ARGV[1] then return {'MISMATCH'} end
if not f[2] then return {'IN_FLIGHT'} end
return {'REPLAY', f[2], f[3], f[4]}
