-- uses: clock ledger topup
-- Hold credits. KEYS: balance, hold, due, journal, topup, intents.
-- ARGV: account, hold id, cost, ttl ms, fingerprint, monthly grant, floor.
-- Answers OK | DUP:<state> | MISMATCH | NOFUNDS, then the packed account.
local acct, id, cost = ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = now_ms()
local raw = redis.call('MGET', KEYS[1], KEYS[2])
load_account(raw[1])
if raw[2] then
  local H = load_hold(raw[2])
  if H.cost ~= cost or H.fp ~= ARGV[5] then return {'MISMATCH', raw[1]} end
  return {'DUP:' .. H.state, raw[1]}
end
roll(acct, KEYS[4], now, tonumber(ARGV[6]))
local g, p, d = split(now, cost, tonumber(ARGV[7]))
if not g then
  consider_topup(acct, KEYS[5], KEYS[6], now, -1)
  local packed = packed_account()
  redis.call('SET', KEYS[1], packed)
  return {'NOFUNDS', packed}
end
note(acct, KEYS[4], now, 'reserve', id, -g, -p, d)
A.h = A.h + cost
consider_topup(acct, KEYS[5], KEYS[6], now, A.g + A.p - A.d)
local packed = packed_account()
redis.call('MSET', KEYS[1], packed, KEYS[2], packed_hold('held', cost, 0, g, p, d, 0, ARGV[5]))
redis.call('ZADD', KEYS[3], now + tonumber(ARGV[4]), acct .. '\31' .. id)
return {'OK', packed}
