-- uses: clock
-- Renew the lease of a running job. KEYS: job, open.
-- ARGV: account, job id, fence, lease ms, progress, stage, run limit ms.
-- Answers 1, or 0 if another attempt has the job, or it has ended or run too long.
local now = now_ms()
local f = redis.call('HMGET', KEYS[1], 'state', 'fence', 'started')
if f[1] ~= 'running' or f[2] ~= ARGV[3] then return 0 end
if now >= tonumber(f[3]) + tonumber(ARGV[7]) then
  redis.call('HSET', KEYS[1], 'lease', now)
  redis.call('ZADD', KEYS[2], now, ARGV[1] .. '\31' .. ARGV[2])
  return 0
end
local lease = now + tonumber(ARGV[4])
redis.call('HSET', KEYS[1], 'lease', lease, 'progress', ARGV[5], 'stage', ARGV[6])
redis.call('ZADD', KEYS[2], lease, ARGV[1] .. '\31' .. ARGV[2])
return 1
