-- uses: clock lanes
-- Claims whose lease is over; each is leased again until its record has been looked at.
-- ARGV: lease ms, most. Answers owner|job, …
local now = now_ms()
local ends = now + tonumber(ARGV[1])
local found = redis.call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, tonumber(ARGV[2]))
-- No lease that is given now ends later, and no pause: since then the clock was set back.
if #found == 0 then
  found = redis.call('ZRANGEBYSCORE', LEASES, '(' .. ends, '+inf', 'LIMIT', 0, tonumber(ARGV[2]))
end
for _, entry in ipairs(found) do redis.call('ZADD', LEASES, ends, entry) end
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', DELAYED, '(' .. ends, '+inf')) do
  redis.call('ZADD', DELAYED, now, entry)
end
return found
