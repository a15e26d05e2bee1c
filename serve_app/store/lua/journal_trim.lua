-- Fold exported entries into the base sums and drop them from the stream.
-- KEYS: journal, base. ARGV: last exported entry, most.
-- Answers how many were dropped.
local found = redis.call('XRANGE', KEYS[1], '-', ARGV[1], 'COUNT', ARGV[2])
for _, entry in ipairs(found) do
  local acct, n, g, p, d =
    string.match(entry[2][2], '^(%S+) (%d+) %S+ %S+ (%-?%d+) (%-?%d+) (%-?%d+)$')
  redis.call('HSET', KEYS[2], acct .. ' n', n)
  redis.call('HINCRBY', KEYS[2], acct .. ' g', g)
  redis.call('HINCRBY', KEYS[2], acct .. ' p', p)
  redis.call('HINCRBY', KEYS[2], acct .. ' d', d)
  redis.call('XDEL', KEYS[1], entry[1])
end
return #found
