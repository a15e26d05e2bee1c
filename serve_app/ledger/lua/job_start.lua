-- uses: clock
-- Begin an attempt. KEYS: job, open.
-- ARGV: account, job id, worker, lease ms.
-- Answers {'OK', attempts, fence, tier, payload, cost} or {'NO'} if not queued or not yet due.
local now = now_ms()
local f = redis.call('HMGET', KEYS[1], 'state', 'ready', 'tier', 'payload', 'cost', 'queued')
if f[1] ~= 'queued' then return {'NO'} end
-- A job with a queueing time in the future is due: the clock has been set back since.
if tonumber(f[2]) > now and tonumber(f[6]) <= now then return {'NO'} end
local attempts = redis.call('HINCRBY', KEYS[1], 'attempts', 1)
local fence = redis.call('HINCRBY', KEYS[1], 'fence', 1)
local lease = now + tonumber(ARGV[4])
redis.call('HSET', KEYS[1], 'state', 'running', 'worker', ARGV[3], 'lease', lease, 'started', now,
  'progress', 0, 'stage', 'started')
redis.call('ZADD', KEYS[2], lease, ARGV[1] .. '\31' .. ARGV[2])
return {'OK', attempts, fence, f[3], f[4], f[5]}
