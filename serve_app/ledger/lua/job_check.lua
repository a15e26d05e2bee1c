-- uses: clock calendar ledger topup holds jobs
-- Look at an unfinished job whose time has come, or whose worker is known to be dead.
-- KEYS: balance, hold, due, journal, job, open, dead, hook, hooks due.
-- ARGV: account, job id, dead worker or '', attempts allowed, queue limit ms, run limit ms,
--       re-check ms, crash message, queue message, run message.
-- Answers GONE | ENQUEUE tier delay | REQUEUED tier delay | FAILED | WAIT.
local acct, id = ARGV[1], ARGV[2]
local f = redis.call('HMGET', KEYS[5], 'state', 'worker', 'lease', 'attempts', 'queued', 'started',
  'tier', 'ready')
local open_member = acct .. '\31' .. id
if f[1] == 'queued' then
  local limit = tonumber(f[5]) + tonumber(ARGV[5])
  if NOW >= limit then
    fail_job(acct, id, 'service_unavailable', ARGV[9], false)
    return {'FAILED'}
  end
  redis.call('ZADD', KEYS[6], math.min(NOW + tonumber(ARGV[7]), limit), open_member)
  return {'ENQUEUE', f[7], math.max(0, tonumber(f[8]) - NOW)}
elseif f[1] == 'running' then
  local is_over = NOW >= tonumber(f[6]) + tonumber(ARGV[6])
  local is_lost = tonumber(f[3]) <= NOW or (ARGV[3] ~= '' and ARGV[3] == f[2])
  if not is_lost then
    return {'WAIT'}
  elseif is_over then
    fail_job(acct, id, 'internal_error', ARGV[10], false)
    return {'FAILED'}
  elseif tonumber(f[4]) >= tonumber(ARGV[4]) then
    fail_job(acct, id, 'internal_error', ARGV[8], true)
    return {'FAILED'}
  end
  queue_again(KEYS[5], KEYS[6], acct, id, 0)
  redis.call('ZADD', KEYS[6], NOW + tonumber(ARGV[7]), open_member)
  return {'REQUEUED', f[7], 0}
end
redis.call('ZREM', KEYS[6], open_member)
return {'GONE'}
