-- uses: clock ledger topup
-- Take a job in: hold the credits, write the record, remember it for its lane.
-- KEYS: balance, hold, due, journal, topup, intents, job, open.
-- ARGV: account, hold id, cost, hold ttl ms, fingerprint, monthly grant, floor,
--       job id, tier, kind, payload, backlog cap, result lifetime ms, grace ms for the first enqueue.
-- Answers OK | DUP | MISMATCH | NOFUNDS | BACKLOG, then the packed account.
local acct, hold_id, cost, job_id = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[8]
local now = now_ms()
local raw = redis.call('MGET', KEYS[1], KEYS[2])
if raw[2] or redis.call('EXISTS', KEYS[7]) == 1 then
  local same = redis.call('HMGET', KEYS[7], 'fp', 'cost')
  if same[1] ~= ARGV[5] or tonumber(same[2]) ~= cost then return {'MISMATCH', raw[1]} end
  return {'DUP', raw[1]}
end
load_account(raw[1])
roll(acct, KEYS[4], now, tonumber(ARGV[6]))
local answer = 'OK'
if A.oj >= tonumber(ARGV[12]) then
  answer = 'BACKLOG'
else
  local g, p, d = split(now, cost, tonumber(ARGV[7]))
  if g then
    note(acct, KEYS[4], now, 'reserve', hold_id, -g, -p, d)
    A.h, A.oj = A.h + cost, A.oj + 1
    redis.call('SET', KEYS[2], packed_hold('held', cost, 0, g, p, d, 1, ARGV[5]))
    redis.call('ZADD', KEYS[3], now + tonumber(ARGV[4]), acct .. '\31' .. hold_id)
    redis.call('HSET', KEYS[7], 'acct', acct, 'tier', ARGV[9], 'kind', ARGV[10],
      'state', 'queued', 'payload', ARGV[11], 'cost', cost, 'used', cost, 'fp', ARGV[5],
      'fence', 0, 'attempts', 0, 'worker', '', 'progress', 0, 'stage', 'queued',
      'created', now, 'queued', now, 'ready', now, 'ttl', ARGV[13])
    redis.call('ZADD', KEYS[8], now + tonumber(ARGV[14]), acct .. '\31' .. job_id)
    consider_topup(acct, KEYS[5], KEYS[6], now, A.g + A.p - A.d)
  else
    answer = 'NOFUNDS'
    consider_topup(acct, KEYS[5], KEYS[6], now, -1)
  end
end
local packed = packed_account()
redis.call('SET', KEYS[1], packed)
return {answer, packed}
