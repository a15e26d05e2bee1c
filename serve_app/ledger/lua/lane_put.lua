-- uses: clock lanes
-- Put a queued job into its lane; a job that already waits there keeps its place.
-- ARGV: lane, owner, job, delay ms, cap per owner, 1 to take it back from a worker that claimed it.
local lane, owner, job, delay = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local place = redis.call('HGET', WHERE, job)
if place and (string.sub(place, 1, 1) ~= 'c' or ARGV[6] ~= '1') then return 0 end
if place then unclaim(job, nil, tonumber(ARGV[5])) end
local now = now_ms()
if delay > 0 then
  redis.call('ZADD', DELAYED, now + delay, table.concat({lane, owner, job}, SEP))
  redis.call('HSET', WHERE, job, table.concat({'d', lane, owner}, SEP))
else
  wait_in_line(lane, owner, job, now, tonumber(ARGV[5]))
end
return 1
