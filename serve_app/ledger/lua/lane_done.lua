-- uses: clock lanes
-- End a claim and make room for the owner's next job. ARGV: job, token, cap per owner, 1 if served.
local now = now_ms()
local f = unclaim(ARGV[1], ARGV[2], tonumber(ARGV[3]))
if not f then return 0 end
if ARGV[4] == '1' then
  local busy = 1
  for i = RINGS + 1, #KEYS do
    local lane = string.match(KEYS[i], ':ring:(.*)$')
    busy = busy + tonumber(redis.call('HGET', BUSY, 'n:' .. lane) or 0)
  end
  mean('service', now - tonumber(f[5]))
  mean('busy', busy)
end
redis.call('LPUSH', WAKE, '1')
redis.call('LTRIM', WAKE, 0, WAKE_KEPT)
return 1
