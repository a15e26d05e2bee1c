-- Fold exported entries into the base sums and drop them from the stream.
-- KEYS: journal, base. ARGV: last exported entry, most.
-- Answers how many were dropped.
local found = redis.call('XRANGE', KEYS[1], '-', ARGV[1], 'COUNT', ARGV[2])
for _, entry in ipairs(found) do
  local acct = string.match(entry[2][2], '^%S+')
  local n, g, p, d = struct.unpack('<dddd', entry[2][4])
  redis.call('HSET', KEYS[2], acct .. ' n', n)
  redis.call('HINCRBY', KEYS[2], acct .. ' g', string.format('%.0f', g + 0))
  redis.call('HINCRBY', KEYS[2], acct .. ' p', string.format('%.0f', p + 0))
  redis.call('HINCRBY', KEYS[2], acct .. ' d', string.format('%.0f', d + 0))
  redis.call('XDEL', KEYS[1], entry[1])
end
return #found
