-- The bytes of an owner's unexpired assets. `expiries` is a zset of asset|size by expiry, `total` the
-- sum of the sizes in it; expired ones are taken out first.
local function stored_bytes(expiries, total, now)
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', expiries, '-inf', now)) do
    redis.call('DECRBY', total, string.match(entry, '\31(%d+)$'))
  end
  redis.call('ZREMRANGEBYSCORE', expiries, '-inf', now)
  return tonumber(redis.call('GET', total) or 0)
end
