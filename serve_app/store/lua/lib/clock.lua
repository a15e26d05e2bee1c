-- Milliseconds since 1970 by the server's own clock; no client can move it.
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
