-- uses: clock
-- Book the next free turn of a provider: at most `limit` in any window, over all processes.
-- KEYS: list of the last `limit` turns, oldest first. ARGV: limit, window ms, longest wait ms.
-- Answers how long to wait for the turn in ms, or -1 if that is too long, and then books nothing.
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local now = now_ms()
-- No turn is booked so far ahead: the clock has been set back.
if tonumber(redis.call('LINDEX', KEYS[1], -1) or 0) > now + tonumber(ARGV[3]) + window then
  redis.call('DEL', KEYS[1])
end
local turn = now
if redis.call('LLEN', KEYS[1]) >= limit then
  turn = math.max(now, tonumber(redis.call('LINDEX', KEYS[1], -limit)) + window)
end
if turn - now > tonumber(ARGV[3]) then return -1 end
redis.call('RPUSH', KEYS[1], turn)
redis.call('LTRIM', KEYS[1], -limit, -1)
redis.call('PEXPIRE', KEYS[1], turn - now + window)
return turn - now
