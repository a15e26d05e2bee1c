-- uses: clock
-- Fold exported entries into the base sums, drop them from the stream, and remember how far; what
-- takes back lost entries (recover.lua) is the archive's alone. The
-- holds that a call ended are listed together, with the time, to be forgotten by forget.lua.
-- KEYS: journal, base, ended. ARGV: last exported entry, most.
local ENDS = {commit = true, void = true, reap = true, hit = true}
local LOST = 'lost'
local found = redis.call('XRANGE', KEYS[1], '-', ARGV[1], 'COUNT', ARGV[2])
local base, ids, ended, now = {}, {}, {'RPUSH', KEYS[3]}, now_ms()
for i, entry in ipairs(found) do
  local at, batch = 1, {now}
  ids[i] = entry[1]
  for kind, member, acct in string.gmatch(entry[2][2], '(%S+) (([^\31]+)\31%S+)') do
    if ENDS[kind] then batch[#batch + 1] = member end
    local number, grant, packs, debt
    number, grant, packs, debt, at = struct.unpack('<dddd', entry[2][4], at)
    if kind ~= LOST then
      local sums = base[acct] or {0, 0, 0, 0}
      base[acct] = sums
      sums[1], sums[2] = number, sums[2] + grant
      sums[3], sums[4] = sums[3] + packs, sums[4] + debt
    end
  end
  if batch[2] then ended[#ended + 1] = table.concat(batch, ' ') end
end
for acct, sums in pairs(base) do
  redis.call('HSET', KEYS[2], acct .. ' n', sums[1])
  redis.call('HINCRBY', KEYS[2], acct .. ' g', sums[2])
  redis.call('HINCRBY', KEYS[2], acct .. ' p', sums[3])
  redis.call('HINCRBY', KEYS[2], acct .. ' d', sums[4])
end
redis.call('HSET', KEYS[2], 'exported', ARGV[1])
if ended[3] then redis.call(unpack(ended)) end
if ids[1] then redis.call('XDEL', KEYS[1], unpack(ids)) end
