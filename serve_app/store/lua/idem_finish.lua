-- Remember an answer. KEYS: record. ARGV: status, headers, body, ttl ms.
-- Answers 0 when the request had lapsed: another one may have the key now.
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], 'status', ARGV[1], 'headers', ARGV[2], 'body', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
