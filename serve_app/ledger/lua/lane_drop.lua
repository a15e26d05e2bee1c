-- uses: clock lanes
-- Forget a job that has ended. ARGV: job, cap per owner.
local job = ARGV[1]
local place = redis.call('HGET', WHERE, job)
if not place then return 0 end
local f = parts(place)
if f[1] == 'c' then
  unclaim(job, nil, tonumber(ARGV[2]))
elseif f[1] == 'w' then
  local lane, owner = f[2], f[3]
  redis.call('ZREM', JOBS, table.concat({lane, owner, f[4], f[5], f[6]}, SEP))
  redis.call('HINCRBY', DEPTH, lane, -1)
  redis.call('HDEL', WHERE, job)
  if not first_waiting(lane, owner) then
    redis.call('ZREM', RING[lane], lane .. SEP .. owner)
  end
else
  redis.call('ZREM', DELAYED, table.concat({f[2], f[3], job}, SEP))
  redis.call('HDEL', WHERE, job)
end
return 1
