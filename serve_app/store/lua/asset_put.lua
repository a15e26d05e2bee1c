-- uses: clock quota
-- Write an asset's record, or find the one for the same bytes; refuse it if it would exceed the quota.
-- KEYS: record, hash of the bytes, index, due, expiries, total, track link. The last one is used only
--       with a track.
-- ARGV: owner, asset id, sha256, size, type, lifetime ms, track or '', quota in bytes.
-- Answers {'OK', created ms, expires ms} | {'DUP', asset id} | {'FULL', bytes stored, ms until the
-- next expiry}. Record and hash expire together, and count towards the quota until then.
local known = redis.call('GET', KEYS[2])
if known then
  if ARGV[7] ~= '' then redis.call('SET', KEYS[7], known, 'PX', redis.call('PTTL', KEYS[2])) end
  return {'DUP', known}
end
local now = now_ms()
local stored = stored_bytes(KEYS[5], KEYS[6], now)
if stored + tonumber(ARGV[4]) > tonumber(ARGV[8]) then
  local first = redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')
  return {'FULL', stored, first[2] and tonumber(first[2]) - now or 0}
end
local expires = now + tonumber(ARGV[6])
redis.call('HSET', KEYS[1], 'sha256', ARGV[3], 'size', ARGV[4], 'type', ARGV[5], 'created', now,
  'expires', expires, 'track', ARGV[7])
redis.call('PEXPIREAT', KEYS[1], expires)
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[6])
redis.call('ZADD', KEYS[3], 0, ARGV[2])
redis.call('ZADD', KEYS[4], expires, ARGV[1] .. '\31' .. ARGV[2])
redis.call('ZADD', KEYS[5], expires, ARGV[2] .. '\31' .. ARGV[4])
redis.call('INCRBY', KEYS[6], ARGV[4])
if ARGV[7] ~= '' then redis.call('SET', KEYS[7], ARGV[2], 'PX', ARGV[6]) end
return {'OK', now, expires}
