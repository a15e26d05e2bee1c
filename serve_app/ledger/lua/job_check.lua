-- uses: clock calendar ledger topup holds jobs
-- Check an unfinished job that is due for a check.
-- KEYS: balance, hold, due, journal, job, open, dead, hook, hooks due.
-- ARGV: account, job id, attempts allowed, queue limit ms, run limit ms, shortest and longest pause
--       ms between two looks, crash message, queue message, run message, lease ms.
-- Answers {GONE}, or one of ENQUEUE, REQUEUED, FAILED and WAIT with the kind of the job's source,
-- tier, delay ms, and the source's object key or ''.
local acct, id = ARGV[1], ARGV[2]
local f = redis.call('HMGET', KEYS[5], 'state', 'lease', 'attempts', 'queued', 'started', 'tier',
  'ready', 'payload')
local source = f[8] and cjson.decode(f[8]).source
local function answer(word, delay)
  return {word, source.kind, f[6], delay or 0, source.key or ''}
end
local open_member = acct .. '\31' .. id
-- Its place in line may still get lost: look again when it has waited for twice as long.
local function look_again(queued)
  local pause = math.min(tonumber(ARGV[7]), math.max(tonumber(ARGV[6]), NOW - queued))
  redis.call('ZADD', KEYS[6], math.min(NOW + pause, queued + tonumber(ARGV[4])), open_member)
end
if f[1] == 'queued' then
  if NOW >= tonumber(f[4]) + tonumber(ARGV[4]) then
    fail_job(acct, id, 'service_unavailable', ARGV[9], false)
    return answer('FAILED')
  end
  look_again(tonumber(f[4]))
  return answer('ENQUEUE', math.max(0, tonumber(f[7]) - NOW))
elseif f[1] == 'running' then
  if tonumber(f[2]) > NOW then
    -- No lease given now ends later than this: if one does, the clock has been set back.
    redis.call('HSET', KEYS[5], 'lease', math.min(tonumber(f[2]), NOW + tonumber(ARGV[11])))
    return answer('WAIT')
  elseif NOW >= tonumber(f[5]) + tonumber(ARGV[5]) then
    fail_job(acct, id, 'internal_error', ARGV[10], false)
    return answer('FAILED')
  elseif tonumber(f[3]) >= tonumber(ARGV[3]) then
    fail_job(acct, id, 'internal_error', ARGV[8], true)
    return answer('FAILED')
  end
  queue_again(KEYS[5], KEYS[6], acct, id, 0)
  look_again(NOW)
  return answer('REQUEUED')
end
redis.call('ZREM', KEYS[6], open_member)
return {'GONE'}
