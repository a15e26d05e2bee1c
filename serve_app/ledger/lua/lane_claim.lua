-- uses: clock lanes
-- Claim the next job: lanes by weighted round robin, the owners of a lane in turn.
-- ARGV: worker, token, lease ms, cap per owner, then the weight of each lane in the order of KEYS.
-- Answers {job, owner, lane} or {}.
local worker, token, cap = ARGV[1], ARGV[2], tonumber(ARGV[4])
local now = now_ms()
for _, ready in ipairs(redis.call('ZRANGEBYSCORE', DELAYED, '-inf', now, 'LIMIT', 0, 50)) do
  local f = parts(ready)
  redis.call('ZREM', DELAYED, ready)
  wait_in_line(f[1], f[2], f[3], now, cap)
end

-- A lane is served `weight` times, then the next; one without claimable work is skipped.
local lanes = #KEYS - RINGS
local turn = tonumber(redis.call('HGET', STATS, 'turn') or 0)
local quantum = tonumber(redis.call('HGET', STATS, 'quantum') or ARGV[5])
local who = nil
for _ = 0, lanes do
  who = quantum > 0 and redis.call('ZRANGE', KEYS[RINGS + 1 + turn], 0, 0)[1]
  if who then break end
  turn = (turn + 1) % lanes
  quantum = tonumber(ARGV[5 + turn])
end
if not who then return {} end
redis.call('HSET', STATS, 'turn', turn, 'quantum', quantum - 1)

local f = parts(who)
local lane, owner = f[1], f[2]
local entry = first_waiting(lane, owner)
local e = parts(entry)
local job = e[4]
redis.call('ZREM', JOBS, entry)
redis.call('HINCRBY', DEPTH, lane, -1)
local served = redis.call('HINCRBY', STATS, 'served', 1)
redis.call('ZADD', SERVED, served, who)
redis.call('ZREMRANGEBYRANK', SERVED, 0, -SERVED_KEPT - 1)
redis.call('ZREM', RING[lane], who)
local busy = redis.call('HINCRBY', BUSY, who, 1)
redis.call('HINCRBY', BUSY, 'n:' .. lane, 1)
if busy < cap and first_waiting(lane, owner) then redis.call('ZADD', RING[lane], served, who) end
redis.call('HSET', WHERE, job, table.concat({'c', lane, owner, token, now, worker}, SEP))
redis.call('ZADD', LEASES, now + tonumber(ARGV[3]), owner .. SEP .. job)
return {job, owner, lane}
