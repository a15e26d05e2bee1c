-- uses: clock calendar ledger topup holds jobs
-- Check an unfinished job that is due for a check, or whose worker is known to be dead.
-- KEYS: balance, hold, due, journal, job, open, dead, hook, hooks due.
-- ARGV: account, job id, dead worker or '', attempts allowed, queue limit ms, run limit ms,
--       shortest and longest pause ms between two looks, crash message, queue message, run message,
--       lease ms.
-- Answers {GONE}, or one of ENQUEUE, REQUEUED, FAILED and WAIT with the kind of the job's source,
-- tier, delay ms, and the source's object key or ''.
local acct, id = ARGV[1], ARGV[2]
local f = redis.call('HMGET', KEYS[5], 'state', 'worker', 'lease', 'attempts', 'queued', 'started',
  'tier', 'ready', 'payload')
local source = f[9] and cjson.decode(f[9]).source
local function answer(word, delay)
  return {word, source.kind, f[7], delay or 0, source.key or ''}
end
local open_member = acct .. '\31' .. id
-- Its place in line may still get lost: look again when it has waited for twice as long.
local function look_again(queued)
  local pause = math.min(tonumber(ARGV[8]), math.max(tonumber(ARGV[7]), NOW - queued))
  redis.call('ZADD', KEYS[6], math.min(NOW + pause, queued + tonumber(ARGV[5])), open_member)
end
if f[1] == 'queued' then
  if NOW >= tonumber(f[5]) + tonumber(ARGV[5]) then
    fail_job(acct, id, 'service_unavailable', ARGV[10], false)
    return answer('FAILED')
  end
  look_again(tonumber(f[5]))
  return answer('ENQUEUE', math.max(0, tonumber(f[8]) - NOW))
elseif f[1] == 'running' then
  local is_over = NOW >= tonumber(f[6]) + tonumber(ARGV[6])
  local is_lost = tonumber(f[3]) <= NOW or (ARGV[3] ~= '' and ARGV[3] == f[2])
  if not is_lost then
    -- No lease given now ends later than this: if one does, the clock has been set back.
    redis.call('HSET', KEYS[5], 'lease', math.min(tonumber(f[3]), NOW + tonumber(ARGV[12])))
    return answer('WAIT')
  elseif is_over then
    fail_job(acct, id, 'internal_error', ARGV[11], false)
    return answer('FAILED')
  elseif tonumber(f[4]) >= tonumber(ARGV[4]) then
    fail_job(acct, id, 'internal_error', ARGV[9], true)
    return answer('FAILED')
  end
  queue_again(KEYS[5], KEYS[6], acct, id, 0)
  look_again(NOW)
  return answer('REQUEUED')
end
redis.call('ZREM', KEYS[6], open_member)
return {'GONE'}
