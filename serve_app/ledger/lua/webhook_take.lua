-- uses: clock
-- Take due deliveries of a shard; each is out of reach for others until its lease ends.
-- KEYS: due, tries. ARGV: lease ms, most. Answers {member, attempt, …}.
local now = now_ms()
local taken = {}
for _, m in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])) do
  redis.call('ZADD', KEYS[1], now + tonumber(ARGV[1]), m)
  taken[#taken + 1] = m
  taken[#taken + 1] = redis.call('HINCRBY', KEYS[2], m, 1)
end
return taken
