-- uses: clock
-- Generic cell rate algorithm (ITU-T I.371), one key per owner and class.
-- KEYS: theoretical arrival time. ARGV: limit, window ms, burst, cost (0 only looks).
-- Answers {allowed 0|1, remaining, retry after ms, reset after ms}.
local now = now_ms()
local limit, window, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local step = window / limit
local depth = burst * step
local tat = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0))
local new = tat + cost * step
local needed = cost > 0 and new or tat + step
if needed - now > depth then
  return {0, math.max(0, math.floor((depth - (tat - now)) / step)), math.ceil(needed - depth - now),
    math.ceil(tat - now)}
end
if cost > 0 then redis.call('SET', KEYS[1], string.format('%.3f', new), 'PX', math.ceil(new - now)) end
return {1, math.floor((depth - (new - now)) / step), 0, math.ceil(new - now)}
