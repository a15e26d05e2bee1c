-- uses: clock calendar ledger topup holds
-- Accept a job: hold the credits, write the record, index it as open.
-- KEYS: balance, hold, due, journal, topup, intents, job, open, list of the account's jobs.
-- ARGV: account, hold id, cost, hold ttl ms, fingerprint, monthly grant, floor,
--       job id, tier, kind, payload, backlog cap, result lifetime ms, ms until the sweep checks
--       that it is in its lane, grace ms, whether its owner may list it, how long the list keeps jobs.
-- Answers OK | DUP | MISMATCH | NOFUNDS | BACKLOG, then the packed account.
local acct, hold_id, cost, job_id = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[8]
local raw = redis.call('MGET', KEYS[1], KEYS[2])
if raw[2] or redis.call('EXISTS', KEYS[7]) == 1 then
  local same = redis.call('HMGET', KEYS[7], 'fp', 'cost')
  if same[1] ~= ARGV[5] or tonumber(same[2]) ~= cost then return {'MISMATCH', raw[1]} end
  return {'DUP', raw[1]}
end
local A = open_account(acct, raw[1], KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
local answer = 'BACKLOG'
if A.open_jobs < tonumber(ARGV[12]) then
  answer = reserve(A, raw[2], KEYS[2], acct .. '\31' .. hold_id, cost, tonumber(ARGV[4]),
    tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[15]), ARGV[5], 1)
end
if answer == 'OK' then A.open_jobs = A.open_jobs + 1 end
local packed = close_account(A)
write_all()
if answer == 'OK' then
  redis.call('HSET', KEYS[7], 'acct', acct, 'tier', ARGV[9], 'kind', ARGV[10],
    'state', 'queued', 'payload', ARGV[11], 'cost', cost, 'used', cost, 'fp', ARGV[5],
    'fence', 0, 'attempts', 0, 'worker', '', 'progress', 0, 'stage', 'queued',
    'created', NOW, 'queued', NOW, 'ready', NOW, 'ttl', ARGV[13])
  redis.call('ZADD', KEYS[8], NOW + tonumber(ARGV[14]), acct .. '\31' .. job_id)
  if ARGV[16] == '1' then
    redis.call('ZADD', KEYS[9], NOW, job_id)
    redis.call('ZREMRANGEBYSCORE', KEYS[9], '-inf', NOW - tonumber(ARGV[17]))
  end
end
return {answer, packed}
