-- The lanes: hints about which queued job to run next. The job record is the truth.
--   {lanes}:jobs     zset, score 0: lane|owner|number|job|ms   waiting jobs, in order per owner
--   {lanes}:where    hash: job -> 'w|'member or 'c|'lane|owner|token|ms|worker or
--                    'd|'lane|owner
--   {lanes}:served   zset: lane|owner by when it was last served
--   {lanes}:busy     hash: lane|owner -> claimed jobs; 'n:'lane -> claimed in the lane
--   {lanes}:depth    hash: lane -> waiting jobs
--   {lanes}:delayed  zset: lane|owner|job by the time it becomes ready
--   {lanes}:leases   zset: owner|job by the end of its claim
--   {lanes}:stats    hash: number, served, turn, quantum, moving means of service (ms) and busy
--   {lanes}:wake     list: one token per new job, for waiting workers
--   {lanes}:ring:<lane>  zset, one per lane: lane|owner by when it was last served; owners with
--                        waiting jobs who may run another one
-- '|' stands for the separator 0x1f. KEYS are always these nine, then the rings, in this order.
local JOBS, WHERE, SERVED, BUSY, DEPTH = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local DELAYED, LEASES, STATS, WAKE = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local RINGS = 9
local RING = {}
for i = RINGS + 1, #KEYS do RING[string.match(KEYS[i], ':ring:(.*)$')] = KEYS[i] end
local SEP = '\31'
local SERVED_KEPT = 20000
local WAKE_KEPT = 255
local WEIGHT = 0.1

local function parts(text)
  local out = {}
  for part in string.gmatch(text, '[^\31]+') do out[#out + 1] = part end
  return out
end

local function first_waiting(lane, owner)
  local from = lane .. SEP .. owner .. SEP
  return redis.call('ZRANGEBYLEX', JOBS, '[' .. from, '[' .. from .. '\255', 'LIMIT', 0, 1)[1]
end

-- An owner with waiting jobs who may run another one is in the ring, by when it was last served.
local function join_ring(lane, owner, cap)
  local who = lane .. SEP .. owner
  if tonumber(redis.call('HGET', BUSY, who) or 0) >= cap then return end
  redis.call('ZADD', RING[lane], 'NX', redis.call('ZSCORE', SERVED, who) or 0, who)
end

local function wait_in_line(lane, owner, job, now, cap)
  local n = redis.call('HINCRBY', STATS, 'number', 1)
  local entry = table.concat({lane, owner, string.format('%016.0f', n), job, now}, SEP)
  redis.call('ZADD', JOBS, 0, entry)
  redis.call('HSET', WHERE, job, 'w' .. SEP .. entry)
  redis.call('HINCRBY', DEPTH, lane, 1)
  join_ring(lane, owner, cap)
  redis.call('LPUSH', WAKE, '1')
  redis.call('LTRIM', WAKE, 0, WAKE_KEPT)
end

local function mean(field, value)
  local old = redis.call('HGET', STATS, field)
  local new = old and tonumber(old) + WEIGHT * (value - tonumber(old)) or value
  redis.call('HSET', STATS, field, string.format('%.3f', new))
end

-- Take back the claim of a job, if there is one (and, with a token, only that one).
local function unclaim(job, token, cap)
  local place = redis.call('HGET', WHERE, job)
  if not place then return nil end
  local f = parts(place)
  if f[1] ~= 'c' or (token and f[4] ~= token) then return nil end
  local lane, owner = f[2], f[3]
  local who = lane .. SEP .. owner
  if redis.call('HINCRBY', BUSY, who, -1) <= 0 then redis.call('HDEL', BUSY, who) end
  redis.call('HINCRBY', BUSY, 'n:' .. lane, -1)
  redis.call('ZREM', LEASES, owner .. SEP .. job)
  redis.call('HDEL', WHERE, job)
  if first_waiting(lane, owner) then join_ring(lane, owner, cap) end
  return f
end
