-- Automatic top-up. A hash: on, th, pack, price, cap, month, spent, intent, sent, iprice, ipack,
-- fails, off, n.

-- Have the journal keep a top-up's hash as it is now.
local function keep_topup(S, key, name)
  keep(S, 't' .. name, cjson.encode(redis.call('HGETALL', key)))
end

-- `spent` counts this month's charges and the open intent, even one carried over from last month.
local function spent_this_month(A)
  local f = redis.call('HMGET', A.topup, 'month', 'spent', 'iprice')
  if tonumber(f[1]) == A.period then return tonumber(f[2]) end
  local carried = tonumber(f[3]) or 0
  redis.call('HSET', A.topup, 'month', A.period, 'spent', carried)
  keep_topup(A.shard, A.topup, A.name)
  return carried
end

-- Close the open intent as paid, if it has this `id`.
local function close_intent(A, id)
  if redis.call('HGET', A.topup, 'intent') ~= id then return end
  spent_this_month(A)
  redis.call('HDEL', A.topup, 'intent', 'sent', 'iprice', 'ipack')
  redis.call('HSET', A.topup, 'fails', 0)
  redis.call('ZREM', A.intents, A.name)
  keep_topup(A.shard, A.topup, A.name)
end

-- Open an intent if `left` is under the threshold, none is open and the cap allows it. For a refused
-- reserve, `left` is -1. An intent's id includes the time: a failover may reset the count, and the id
-- must be new to the payment provider.
local function consider_topup(A, left)
  if A.topup_threshold < 0 or left >= A.topup_threshold then return end
  local f = redis.call('HMGET', A.topup, 'intent', 'price', 'cap', 'pack')
  if f[1] then return end
  local spent, price = spent_this_month(A), tonumber(f[2])
  if spent + price > tonumber(f[3]) then return end
  local n = redis.call('HINCRBY', A.topup, 'n', 1)
  local id = string.format('topup_%s_%.0f_%.0f', A.name, NOW, n)
  redis.call('HSET', A.topup, 'intent', id, 'sent', 0, 'iprice', price, 'ipack', f[4],
    'spent', spent + price)
  redis.call('ZADD', A.intents, NOW, A.name)
  keep_topup(A.shard, A.topup, A.name)
end
