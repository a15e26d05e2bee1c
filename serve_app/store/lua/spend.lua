-- Book one billed call of a month. KEYS: calls booked in that month. ARGV: most calls, lifetime ms.
-- Answers 1, or 0: the month's calls are used up, and nothing is booked.
if tonumber(redis.call('GET', KEYS[1]) or 0) >= tonumber(ARGV[1]) then return 0 end
redis.call('INCR', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
