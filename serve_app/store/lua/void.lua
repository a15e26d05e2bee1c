-- uses: clock ledger
-- Refund a hold, or reap it when its deadline has passed.
-- KEYS: balance, hold, due, journal. ARGV: account, hold id, 'voided' | 'reaped'.
-- Answers OK | DUP | EARLY | JOB | CLOSED:<state> | MISSING, then the packed account.
-- A job's hold is never reaped: the job itself ends it.
local acct, id, state = ARGV[1], ARGV[2], ARGV[3]
local raw = redis.call('MGET', KEYS[1], KEYS[2])
if not raw[2] then return {'MISSING', raw[1]} end
local H = load_hold(raw[2])
if H.state == state then return {'DUP', raw[1]} end
if H.state ~= 'held' then return {'CLOSED:' .. H.state, raw[1]} end
local now = now_ms()
if state == 'reaped' then
  if H.job == 1 then return {'JOB', raw[1]} end
  if tonumber(redis.call('ZSCORE', KEYS[3], acct .. '\31' .. id)) > now then
    return {'EARLY', raw[1]}
  end
end
load_account(raw[1])
roll(acct, KEYS[4], now, -1)
settle(acct, now, id, H, state, state == 'reaped' and 'reap' or 'void', 0)
local packed = packed_account()
redis.call('SET', KEYS[1], packed)
return {'OK', packed}
