-- Remember an answer. KEYS: record. ARGV: fingerprint, status, headers, body, ttl ms.
-- Answers 0 when the request had lapsed: another one may have the key now.
if redis.call('HGET', KEYS[1], 'fp') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'status', ARGV[2], 'headers', ARGV[3], 'body', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1
