-- uses: clock
-- Write an asset's record, or find the one of the same bytes.
-- KEYS: record, hash of the bytes, index, due, track link. The last one counts only with a track.
-- ARGV: owner, asset id, sha256, size, type, lifetime ms, track or ''.
-- Answers {'OK', created ms, expires ms} | {'DUP', asset id}. Record and hash expire together.
local known = redis.call('GET', KEYS[2])
if known then
  if ARGV[7] ~= '' then redis.call('SET', KEYS[5], known, 'PX', redis.call('PTTL', KEYS[2])) end
  return {'DUP', known}
end
local now = now_ms()
local expires = now + tonumber(ARGV[6])
redis.call('HSET', KEYS[1], 'sha256', ARGV[3], 'size', ARGV[4], 'type', ARGV[5], 'created', now,
  'expires', expires, 'track', ARGV[7])
redis.call('PEXPIREAT', KEYS[1], expires)
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[6])
redis.call('ZADD', KEYS[3], 0, ARGV[2])
redis.call('ZADD', KEYS[4], expires, ARGV[1] .. '\31' .. ARGV[2])
if ARGV[7] ~= '' then redis.call('SET', KEYS[5], ARGV[2], 'PX', ARGV[6]) end
return {'OK', now, expires}
