-- Job records. A hash: acct tier kind state payload cost used fp fence attempts worker lease
-- progress stage code message created queued started finished result ttl.
-- `open` holds every unfinished job by the time of its next check: a queued one may not have reached
-- its lane, a running one's lease may end.
local DEAD_KEPT = 999

local function end_job(job, open, acct, id, state, used, ttl)
  redis.call('HSET', job, 'state', state, 'used', used, 'finished', NOW, 'worker', '')
  redis.call('PEXPIRE', job, ttl)
  redis.call('ZREM', open, acct .. '\31' .. id)
  redis.call('PUBLISH', 'afa-job-events', id)
end

-- If the account has a webhook, note that a delivery is due.
local function announce(hook, hooks_due, acct, id)
  if redis.call('EXISTS', hook) == 1 then
    redis.call('ZADD', hooks_due, NOW, acct .. '\31' .. id)
  end
end

-- End a job's hold and count one open job less; returns what the job cost. After a failover the hold may
-- have ended before its job: if committed, it stays so if the job completes, and is refunded if it fails.
-- KEYS begin with balance, hold, due, journal. final < 0: the whole cost.
local function end_hold(acct, id, state, final)
  local raw = redis.call('MGET', KEYS[1], KEYS[2])
  local A = open_account(acct, raw[1], KEYS[1], KEYS[3], KEYS[4])
  local member = acct .. '\31job:' .. id
  local was, cost, at_cost = 'missing', 0, 0
  if raw[2] then was, cost, at_cost = struct.unpack(HOLD, raw[2]) end
  if final < 0 or final > cost then final = cost end
  if was == 'held' then
    settle(A, raw[2], KEYS[2], member, state, final)
  elseif was == 'committed' and state == 'voided' then
    refund(A, raw[2], KEYS[2], member)
  else
    final = at_cost
  end
  A.open_jobs = math.max(0, A.open_jobs - 1)
  close_account(A)
  write_all()
  return final
end

-- Fail a job and give its credits back.
-- KEYS: balance, hold, due, journal, job, open, dead, hook, hooks due.
local function fail_job(acct, id, code, message, is_dead)
  end_hold(acct, id, 'voided', 0)
  redis.call('HSET', KEYS[5], 'code', code, 'message', message)
  end_job(KEYS[5], KEYS[6], acct, id, 'failed', 0, redis.call('HGET', KEYS[5], 'ttl'))
  if is_dead then
    redis.call('LPUSH', KEYS[7], acct .. '\31' .. id)
    redis.call('LTRIM', KEYS[7], 0, DEAD_KEPT)
  end
  announce(KEYS[8], KEYS[9], acct, id)
end

local function queue_again(job, open, acct, id, delay)
  redis.call('HSET', job, 'state', 'queued', 'queued', NOW, 'ready', NOW + delay, 'worker', '',
    'progress', 0, 'stage', 'queued')
  redis.call('ZADD', open, NOW, acct .. '\31' .. id)
end
