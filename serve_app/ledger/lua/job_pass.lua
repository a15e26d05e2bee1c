-- uses: clock
-- Pass a running job on to its next stage: queue it again with new work. The attempt does not count.
-- KEYS: job, open.
-- ARGV: account, job id, fence, payload, ms until the sweep may look.
-- Answers 1, or 0 if this attempt has lost the job.
local now = now_ms()
local f = redis.call('HMGET', KEYS[1], 'state', 'fence')
if f[1] ~= 'running' or f[2] ~= ARGV[3] then return 0 end
redis.call('HINCRBY', KEYS[1], 'attempts', -1)
redis.call('HSET', KEYS[1], 'state', 'queued', 'payload', ARGV[4], 'queued', now, 'ready', now,
  'worker', '', 'stage', 'queued')
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[5]), ARGV[1] .. '\31' .. ARGV[2])
return 1
