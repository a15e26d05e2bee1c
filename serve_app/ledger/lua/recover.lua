-- uses: clock calendar ledger topup
-- Restore what a failover lost of one account: its state, holds and payments, once.
-- KEYS: balance, due, journal, topup, intents, ended, mark, then the holds, then the payments.
-- ARGV: account, state expected, state wanted, id, lifetime of mark and payments in ms, number of
--       holds, top-up as flat JSON or '', the entry numbers to take back or '', the sums of those entries'
--       grant, packs and debt; then member, packed and deadline or '' of each hold, then each payment's text.
-- Answers OK | DUP | CHANGED. The entry `recover` adds the difference. The entry `lost` is for the archive,
-- which has the lost entries: it takes those numbers back there, and counts in no balance here.
local raw = redis.call('GET', KEYS[1]) or ''
if redis.call('EXISTS', KEYS[7]) == 1 then return 'DUP' end
if raw ~= ARGV[2] then return 'CHANGED' end
local acct = ARGV[1]
local A = open_account(acct, raw ~= '' and raw, KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
local W = open_account(acct, ARGV[3])
local S = A.shard
if ARGV[8] ~= '' then
  S.lines = {'lost', acct .. '\31' .. ARGV[8]}
  S.deltas = {0, -tonumber(ARGV[9]), -tonumber(ARGV[10]), -tonumber(ARGV[11])}
end
note(A, 'recover', acct .. '\31' .. ARGV[4], W.grant - A.grant, W.packs - A.packs, W.debt - A.debt)
W.balance, W.shard, W.raw = A.balance, S, A.raw
W.journal_length, W.open_jobs = A.journal_length, A.open_jobs
if W.debt == 0 then
  W.negative_since = 0
elseif W.negative_since == 0 then
  W.negative_since = NOW
end
local at, ended = 11, {}
for i = 8, 7 + tonumber(ARGV[6]) do
  local member, hold, deadline = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  at = at + 3
  put(KEYS[i], hold)
  keep(S, 'h' .. member, hold)
  if deadline ~= '' then
    S.opened[#S.opened + 1], S.opened[#S.opened + 2] = deadline, member
    keep(S, 'd' .. member, deadline)
  else
    S.closed[#S.closed + 1] = member
    ended[#ended + 1] = string.format('%.0f', NOW) .. ' ' .. member
  end
end
for i = 8 + tonumber(ARGV[6]), #KEYS do
  at = at + 1
  redis.call('SET', KEYS[i], ARGV[at], 'PX', ARGV[5])
end
if ARGV[7] ~= '' then
  local fields = cjson.decode(ARGV[7])
  redis.call('DEL', A.topup)
  redis.call('HSET', A.topup, unpack(fields))
  keep_topup(S, A.topup, acct)
  local intent = redis.call('HGET', A.topup, 'intent')
  if intent then
    redis.call('ZADD', A.intents, tonumber(string.match(intent, '_(%d+)_%d+$')) or 0, acct)
  else
    redis.call('ZREM', A.intents, acct)
  end
end
send('RPUSH', KEYS[6], ended)
redis.call('SET', KEYS[7], ARGV[4], 'PX', ARGV[5])
close_account(W)
write_all()
return 'OK'
