-- Automatic top-up. A hash: on, th, pack, price, cap, month, spent, intent, sent, iprice, ipack,
-- fails, off, n.
-- `spent` counts this month's charges and the open intent, also one carried over from last month.
local function spent_this_month(key, per)
  local f = redis.call('HMGET', key, 'month', 'spent', 'iprice')
  if tonumber(f[1]) == per then return tonumber(f[2]) end
  local carried = tonumber(f[3]) or 0
  redis.call('HSET', key, 'month', per, 'spent', carried)
  return carried
end

-- Opens one intent when `left` is under the threshold, none is open and the cap allows it. A reserve
-- that was refused counts as if nothing were left.
local function consider_topup(A, left)
  if A.topup_threshold < 0 or left >= A.topup_threshold then return end
  local f = redis.call('HMGET', A.topup, 'intent', 'price', 'cap', 'pack')
  if f[1] then return end
  local spent, price = spent_this_month(A.topup, A.period), tonumber(f[2])
  if spent + price > tonumber(f[3]) then return end
  local n = redis.call('HINCRBY', A.topup, 'n', 1)
  local id = 'topup_' .. A.name .. '_' .. n
  redis.call('HSET', A.topup, 'intent', id, 'sent', 0, 'iprice', price, 'ipack', f[4],
    'spent', spent + price)
  redis.call('ZADD', A.intents, NOW, A.name)
end
