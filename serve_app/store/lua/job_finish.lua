-- uses: clock ledger jobs
-- Complete a job: result, charge and state in one step.
-- KEYS: balance, hold, due, journal, job, open, dead, hook, hooks due.
-- ARGV: account, job id, fence, result, final cost or -1.
-- Answers 1, or 0: this attempt has lost the job. The same call again answers 1.
local acct, id = ARGV[1], ARGV[2]
local f = redis.call('HMGET', KEYS[5], 'state', 'fence', 'ttl')
if f[2] ~= ARGV[3] then return 0 end
if f[1] == 'complete' then return 1 end
if f[1] ~= 'running' then return 0 end
local now = now_ms()
local raw = redis.call('MGET', KEYS[1], KEYS[2])
local H = load_hold(raw[2])
local final = tonumber(ARGV[5])
if final < 0 or final > H.cost then final = H.cost end
load_account(raw[1])
roll(acct, KEYS[4], now, -1)
if H.state == 'held' then
  settle(acct, now, 'job:' .. id, H, 'committed', 'commit', final)
end
A.oj = A.oj - 1
redis.call('SET', KEYS[1], packed_account())
redis.call('HSET', KEYS[5], 'result', ARGV[4], 'progress', 1, 'stage', 'complete')
end_job(KEYS[5], KEYS[6], acct, id, 'complete', final, now, f[3])
announce(KEYS[8], KEYS[9], acct, id, now)
return 1
