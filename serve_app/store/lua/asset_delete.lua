-- Delete an asset before it expires. Its bytes are due at once, so that they are swept if nothing else
-- deletes them.
-- KEYS: record, hash of the bytes, index, due, expiries, total. ARGV: owner, asset id.
-- Answers whether there was one.
local size = redis.call('HGET', KEYS[1], 'size')
if not size then return 0 end
redis.call('DEL', KEYS[1])
if redis.call('GET', KEYS[2]) == ARGV[2] then redis.call('DEL', KEYS[2]) end
redis.call('ZREM', KEYS[3], ARGV[2])
redis.call('ZADD', KEYS[4], 0, ARGV[1] .. '\31' .. ARGV[2])
if redis.call('ZREM', KEYS[5], ARGV[2] .. '\31' .. size) == 1 then
  redis.call('DECRBY', KEYS[6], size)
end
return 1
