-- uses: clock
-- Take due deliveries of a shard; no other caller gets them until their lease ends.
-- KEYS: due, tries. ARGV: lease ms, maximum of deliveries. Answers {member, attempt, …}.
local now, most = now_ms(), tonumber(ARGV[2])
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, most)
-- A delivery that was never tried is due, even if the clock has been set back since it was added.
if #due == 0 then
  for _, m in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf', 'LIMIT', 0, most)) do
    if redis.call('HEXISTS', KEYS[2], m) == 0 then due[#due + 1] = m end
  end
end
local taken = {}
for _, m in ipairs(due) do
  redis.call('ZADD', KEYS[1], now + tonumber(ARGV[1]), m)
  taken[#taken + 1] = m
  taken[#taken + 1] = redis.call('HINCRBY', KEYS[2], m, 1)
end
return taken
