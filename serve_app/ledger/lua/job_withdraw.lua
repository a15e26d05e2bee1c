-- uses: clock calendar ledger topup holds jobs
-- Fail and refund a job whose id nobody has received. If there is no such job yet, its submission may
-- still be on its way: the id is blocked.
-- KEYS: balance, hold, due, journal, job, open, dead, hook, hooks due.
-- ARGV: account, job id, code, message, ms to block the id.
-- Answers NONE | FAILED | COMPLETE.
local state = redis.call('HGET', KEYS[5], 'state')
if state == 'queued' or state == 'running' then
  fail_job(ARGV[1], ARGV[2], ARGV[3], ARGV[4], false)
  return 'FAILED'
end
if state then return state == 'complete' and 'COMPLETE' or 'FAILED' end
redis.call('HSET', KEYS[5], 'withdrawn', 1)
redis.call('PEXPIRE', KEYS[5], ARGV[5])
return 'NONE'
