-- Count one billed call in a month. KEYS: calls counted in that month. ARGV: maximum, lifetime ms.
-- Answers 1, or 0 if the month's calls are used up, and then counts nothing.
if tonumber(redis.call('GET', KEYS[1]) or 0) >= tonumber(ARGV[1]) then return 0 end
redis.call('INCR', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
