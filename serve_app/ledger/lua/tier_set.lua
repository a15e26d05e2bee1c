-- uses: clock calendar ledger
-- Move an account to a plan, and its owner's record to the tier. KEYS: balance, journal, owner record;
-- an account in another slot than the record comes without it, and is told only if there is one.
-- ARGV: account, monthly grant, tier. The same call again changes nothing.
local raw, monthly = redis.call('GET', KEYS[1]), tonumber(ARGV[2])
if KEYS[3] then redis.call('HSET', KEYS[3], 'tier', ARGV[3]) end
if not raw and not KEYS[3] then return 0 end
local A = open_account(ARGV[1], raw, KEYS[1], nil, KEYS[2])
if A.has_plan == 1 and A.monthly_grant == monthly then return 0 end
A.monthly_grant, A.has_plan = monthly, 1
note(A, 'tier', string.format('%s\31%.0f', ARGV[1], monthly), 0, 0, 0)
close_account(A)
write_all()
return 1
