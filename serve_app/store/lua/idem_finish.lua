-- Store an answer. KEYS: record. ARGV: fingerprint, status, headers, body, ttl ms.
-- Answers 0 if the key had lapsed: another request may have it now.
if redis.call('HGET', KEYS[1], 'fp') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'status', ARGV[2], 'headers', ARGV[3], 'body', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1
