-- uses: clock lanes
-- Return claims whose lease is over; each is leased again until its record has been checked.
-- ARGV: lease ms, maximum of claims. Answers owner|job, …
local now = now_ms()
local ends = now + tonumber(ARGV[1])
local found = redis.call('ZRANGEBYSCORE', LEASES, '-inf', now, 'LIMIT', 0, tonumber(ARGV[2]))
-- No lease or pause given now ends later than this: the clock has been set back.
if #found == 0 then
  found = redis.call('ZRANGEBYSCORE', LEASES, '(' .. ends, '+inf', 'LIMIT', 0, tonumber(ARGV[2]))
end
for _, entry in ipairs(found) do redis.call('ZADD', LEASES, ends, entry) end
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', DELAYED, '(' .. ends, '+inf')) do
  redis.call('ZADD', DELAYED, now, entry)
end
return found
