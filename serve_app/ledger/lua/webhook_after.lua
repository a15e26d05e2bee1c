-- uses: clock
-- Note the outcome of a delivery. KEYS: due, tries. ARGV: member, delay ms to the next attempt, or
-- -1 if delivered or given up.
if tonumber(ARGV[2]) < 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
else
  redis.call('ZADD', KEYS[1], 'XX', now_ms() + tonumber(ARGV[2]), ARGV[1])
end
return 1
