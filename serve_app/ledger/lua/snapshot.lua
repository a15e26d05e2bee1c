-- Return what an audit compares, as of one moment. KEYS: base, journal, due, then balances.
-- ARGV: the last journal entry that was already read, or '-'.
-- Answers base, entries after it, open holds, balances.
local after = ARGV[1] == '-' and '-' or '(' .. ARGV[1]
local balances = {}
for i = 4, #KEYS do balances[i - 3] = redis.call('GET', KEYS[i]) end
return {redis.call('HGETALL', KEYS[1]), redis.call('XRANGE', KEYS[2], after, '+'),
  redis.call('ZRANGE', KEYS[3], 0, -1), balances}
