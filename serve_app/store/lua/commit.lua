-- uses: clock ledger
-- Post a hold. KEYS: balance, hold, due, journal. ARGV: account, hold id, final cost or -1 for all.
-- Answers OK | DUP | OVER | CLOSED:<state> | MISSING, then the packed account.
local acct, id, final = ARGV[1], ARGV[2], tonumber(ARGV[3])
local raw = redis.call('MGET', KEYS[1], KEYS[2])
if not raw[2] then return {'MISSING', raw[1]} end
local H = load_hold(raw[2])
if final < 0 then final = H.cost end
if H.state == 'committed' and H.final == final then return {'DUP', raw[1]} end
if H.state ~= 'held' then return {'CLOSED:' .. H.state, raw[1]} end
if final > H.cost then return {'OVER', raw[1]} end
local now = now_ms()
load_account(raw[1])
roll(acct, KEYS[4], now, -1)
settle(acct, now, id, H, 'committed', 'commit', final)
local packed = packed_account()
redis.call('SET', KEYS[1], packed)
return {'OK', packed}
