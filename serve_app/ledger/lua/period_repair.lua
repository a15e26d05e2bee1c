-- uses: clock calendar ledger
-- Bring an account back from a month that has not begun, which a clock that was ahead had started.
-- What was granted for that month counts as this month's. KEYS: balance, journal. ARGV: account.
-- Answers 1, or 0 if its month is not ahead.
local raw = redis.call('GET', KEYS[1])
if not raw then return 0 end
local A = open_account(ARGV[1], raw, KEYS[1], nil, KEYS[2])
local period, ends = month_of(confirmed_now(A))
if A.period <= period then return 0 end
A.period, A.period_ends = period, ends
note(A, 'period', A.name .. '\31' .. period, 0, 0, 0)
close_account(A)
write_all()
return 1
