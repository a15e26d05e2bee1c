-- uses: clock
-- End an API key, now or after an overlap that is never lengthened. KEYS: key record.
-- ARGV: overlap ms, 0 revokes. Answers 1, or 0 if there is no such key.
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local overlap = tonumber(ARGV[1])
if overlap == 0 then
  redis.call('HSET', KEYS[1], 'revoked', 1)
  return 1
end
local at = now_ms() + overlap
local old = redis.call('HGET', KEYS[1], 'not_after')
if not old or tonumber(old) > at then redis.call('HSET', KEYS[1], 'not_after', at) end
return 1
