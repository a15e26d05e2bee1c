-- uses: clock lanes
-- Claims whose lease is over; each is leased again until its record has been looked at.
-- ARGV: lease ms, most. Answers owner|job, …
local now = now_ms()
local found = redis.call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, tonumber(ARGV[2]))
for _, entry in ipairs(found) do redis.call('ZADD', LEASES, now + tonumber(ARGV[1]), entry) end
return found
