-- uses: clock
-- Fold exported entries into the base sums, drop them from the stream, and note the last one. Entries that
-- take back lost ones (recover.lua) count only in the archive. The holds that a call ended are listed
-- together with the time, for forget.lua.
-- KEYS: journal, base, ended. ARGV: last exported call, maximum of calls.
-- Answers how many calls were dropped; 0 if they already were, or if the last exported call is not here
-- because a failover has lost it.
local ENDS = {commit = true, void = true, reap = true, hit = true}
local LOST = 'lost'
local function is_before(one, other)
  local ms, number = string.match(one, '(%d+)-(%d+)')
  local other_ms, other_number = string.match(other, '(%d+)-(%d+)')
  if ms == other_ms then ms, other_ms = number, other_number end
  return tonumber(ms) < tonumber(other_ms)
end
local function fields_of(acct) return {acct .. ' n', acct .. ' g', acct .. ' p', acct .. ' d'} end
-- The sums so far. Each entry is added to them as it was to the account, in the same order.
local function base_of(acct)
  local sums = redis.call('HMGET', KEYS[2], unpack(fields_of(acct)))
  for i = 1, 4 do sums[i] = tonumber(sums[i] or 0) end
  return sums
end
local exported = redis.call('HGET', KEYS[2], 'exported')
if exported and not is_before(exported, ARGV[1]) then return 0 end
if not redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1] then return 0 end
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
      local sums = base[acct] or base_of(acct)
      base[acct] = sums
      sums[1], sums[2] = number, sums[2] + grant
      sums[3], sums[4] = sums[3] + packs, sums[4] + debt
    end
  end
  if batch[2] then ended[#ended + 1] = table.concat(batch, ' ') end
end
for acct, sums in pairs(base) do
  for i, field in ipairs(fields_of(acct)) do
    redis.call('HSET', KEYS[2], field, string.format('%.0f', sums[i]))
  end
end
local last = #ids == tonumber(ARGV[2]) and ids[#ids] or ARGV[1]
redis.call('HSET', KEYS[2], 'exported', last)
local claimed = redis.call('HGET', KEYS[2], 'claimed')
if claimed and not is_before(last, claimed) then redis.call('HDEL', KEYS[2], 'claimed') end
if ended[3] then redis.call(unpack(ended)) end
if ids[1] then redis.call('XDEL', KEYS[1], unpack(ids)) end
return #ids
