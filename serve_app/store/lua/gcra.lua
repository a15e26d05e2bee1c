-- uses: clock
-- Generic cell rate algorithm (ITU-T I.371), one key per owner and class.
-- KEYS: theoretical arrival time in µs. ARGV: limit, window ms, burst.
-- Answers {allowed 0|1, remaining, retry after ms, reset after ms}.
-- All times are whole µs, so that nothing is lost to rounding.
local now = now_ms() * 1000
local step = math.floor(tonumber(ARGV[2]) * 1000 / tonumber(ARGV[1]))
local depth = tonumber(ARGV[3]) * step
local tat = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0))
-- Accepted requests never move it so far ahead: the clock has been set back.
if tat > now + depth then tat = now end
local new = tat + step
local wait = new - now - depth
if wait > 0 then return {0, 0, math.ceil(wait / 1000), math.ceil((tat - now) / 1000)} end
local reset = math.ceil((new - now) / 1000)
redis.call('SET', KEYS[1], string.format('%.0f', new), 'PX', reset)
return {1, math.floor((depth - (new - now)) / step), 0, reset}
