-- uses: clock ledger
-- Count cache hits; beyond the monthly allowance each costs credits.
-- KEYS: balance, hold, due, journal. ARGV: account, hit id, hits, allowance, price each,
-- monthly grant, floor, 'charge' | 'reject'.
-- Answers OK | NOFUNDS | OVER, credits charged, then the packed account. A charge leaves a
-- committed hold under the hit id, so that it is made once.
local acct, id, hits = ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = now_ms()
local raw = redis.call('MGET', KEYS[1], KEYS[2])
if raw[2] then return {'OK', load_hold(raw[2]).cost, raw[1]} end
load_account(raw[1])
roll(acct, KEYS[4], now, tonumber(ARGV[6]))
local free = math.max(0, math.min(hits, tonumber(ARGV[4]) - A.lu))
local cost = (hits - free) * tonumber(ARGV[5])
local answer = 'OK'
if hits > free and ARGV[8] == 'reject' then
  answer, cost = 'OVER', 0
elseif cost > 0 then
  local g, p, d = split(now, cost, tonumber(ARGV[7]))
  if g then
    note(acct, KEYS[4], now, 'hit', id, -g, -p, d)
    redis.call('SET', KEYS[2], packed_hold('committed', cost, cost, g, p, d, 0, 'hit'),
      'PX', HOLD_KEPT_MS)
  else
    answer, cost = 'NOFUNDS', 0
  end
end
if answer == 'OK' then A.lu = A.lu + hits end
local packed = packed_account()
redis.call('SET', KEYS[1], packed)
return {answer, cost, packed}
