-- Job records. A hash: acct tier kind state payload cost used fp fence attempts worker lease
-- progress stage code message created queued started finished result ttl.
-- `open` holds every unfinished job by the time it must be looked at next: a queued one that may
-- not have reached its lane, a running one whose lease ends.
local DEAD_KEPT = 999

local function end_job(job, open, acct, id, state, used, now, ttl)
  redis.call('HSET', job, 'state', state, 'used', used, 'finished', now, 'worker', '')
  redis.call('PEXPIRE', job, ttl)
  redis.call('ZREM', open, acct .. '\31' .. id)
  redis.call('PUBLISH', 'afa-job-events', id)
end

-- Only for accounts with a webhook: remember to tell.
local function announce(hook, hooks_due, acct, id, now)
  if redis.call('EXISTS', hook) == 1 then
    redis.call('ZADD', hooks_due, now, acct .. '\31' .. id)
  end
end

-- Fail a job and give its credits back.
-- KEYS: balance, hold, due, journal, job, open, dead, hook, hooks due.
local function fail_job(acct, id, code, message, now, is_dead)
  local raw = redis.call('MGET', KEYS[1], KEYS[2])
  load_account(raw[1])
  roll(acct, KEYS[4], now, -1)
  local H = load_hold(raw[2])
  if H.state == 'held' then
    settle(acct, now, 'job:' .. id, H, 'voided', 'void', 0)
  end
  A.oj = A.oj - 1
  redis.call('SET', KEYS[1], packed_account())
  redis.call('HSET', KEYS[5], 'code', code, 'message', message)
  end_job(KEYS[5], KEYS[6], acct, id, 'failed', 0, now, redis.call('HGET', KEYS[5], 'ttl'))
  if is_dead then
    redis.call('LPUSH', KEYS[7], acct .. '\31' .. id)
    redis.call('LTRIM', KEYS[7], 0, DEAD_KEPT)
  end
  announce(KEYS[8], KEYS[9], acct, id, now)
end

local function queue_again(job, open, acct, id, now, delay)
  redis.call('HSET', job, 'state', 'queued', 'queued', now, 'ready', now + delay, 'worker', '',
    'progress', 0, 'stage', 'queued')
  redis.call('ZADD', open, now, acct .. '\31' .. id)
end
