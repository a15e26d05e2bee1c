-- uses: clock calendar ledger topup holds jobs
-- End an attempt that failed: try again later, or fail the job and refund it.
-- KEYS: balance, hold, due, journal, job, open, dead, hook, hooks due.
-- ARGV: account, job id, fence, code, message, retryable 0|1, delay ms, attempts allowed.
-- Answers RETRY | FAILED | LOST.
local acct, id = ARGV[1], ARGV[2]
local f = redis.call('HMGET', KEYS[5], 'state', 'fence', 'attempts')
if f[1] ~= 'running' or f[2] ~= ARGV[3] then return 'LOST' end
if ARGV[6] == '1' and tonumber(f[3]) < tonumber(ARGV[8]) then
  queue_again(KEYS[5], KEYS[6], acct, id, tonumber(ARGV[7]))
  return 'RETRY'
end
fail_job(acct, id, ARGV[4], ARGV[5], ARGV[6] == '1')
return 'FAILED'
