-- uses: clock calendar ledger topup
-- Add credits: topup, bonus (an extra grant) or adjust (up or down).
-- KEYS: balance, payment, journal, topup, intents.
-- ARGV: account, id, kind, credits, monthly grant or -1, why (JSON) or '', lifetime of the id in ms,
-- limit for grant or packs, including what is held.
-- Answers OK | DUP | MISMATCH | NOFUNDS | FULL, then the packed account. A top-up with the id of the open
-- intent closes it, even if it was booked before. A downward adjustment takes packs, then grant, never debt.
local acct, id, kind, credits = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local raw = redis.call('MGET', KEYS[1], KEYS[2])
local seen = kind .. ' ' .. ARGV[4]
if raw[2] and raw[2] ~= seen then return {'MISMATCH', raw[1]} end
if raw[2] then
  -- This call must write something, so that waiting for a replica covers the payment too.
  redis.call('PEXPIRE', KEYS[2], ARGV[7])
  close_intent(open_account(acct, raw[1], KEYS[1], nil, KEYS[3], KEYS[4], KEYS[5]), id)
  write_all()
  return {'DUP', raw[1]}
end
local A = open_account(acct, raw[1], KEYS[1], nil, KEYS[3], KEYS[4], KEYS[5])
roll(A, tonumber(ARGV[5]))
local member = acct .. '\31' .. id
local why = ARGV[6] ~= '' and ARGV[6] or nil
local answer = 'OK'
if credits < 0 then
  local packs = math.min(A.packs, -credits)
  local grant = -credits - packs
  if grant > A.grant then
    answer = 'NOFUNDS'
  else
    note(A, kind, member, -grant, -packs, 0, why)
  end
elseif credits + A.held + (kind == 'bonus' and A.grant or A.packs) > tonumber(ARGV[8]) then
  answer = 'FULL'
elseif kind == 'bonus' then
  give(A, kind, member, credits, 0, why)
else
  give(A, kind, member, 0, credits, why)
end
if answer == 'OK' then
  redis.call('SET', KEYS[2], seen, 'PX', ARGV[7])
  close_intent(A, id)
end
local packed = close_account(A)
write_all()
return {answer, packed}
