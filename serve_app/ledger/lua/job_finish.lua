-- uses: clock calendar ledger topup holds jobs
-- Complete a job: store the result, charge, and change the state in one step.
-- KEYS: balance, hold, due, journal, job, open, dead, hook, hooks due.
-- ARGV: account, job id, fence, result, final cost or -1.
-- Answers 1, or 0 if this attempt has lost the job. The same call again answers 1.
local acct, id = ARGV[1], ARGV[2]
local f = redis.call('HMGET', KEYS[5], 'state', 'fence', 'ttl')
if f[2] ~= ARGV[3] then return 0 end
if f[1] == 'complete' then return 1 end
if f[1] ~= 'running' then return 0 end
local final = end_hold(acct, id, 'committed', tonumber(ARGV[5]))
redis.call('HSET', KEYS[5], 'result', ARGV[4], 'progress', 1, 'stage', 'complete')
end_job(KEYS[5], KEYS[6], acct, id, 'complete', final, f[3])
announce(KEYS[8], KEYS[9], acct, id)
return 1
