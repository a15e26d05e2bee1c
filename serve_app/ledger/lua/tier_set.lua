-- uses: clock calendar ledger
-- Move an account to a plan, and its owner's record to the tier. KEYS: balance, journal, owner record;
-- the record is left out if it is in another slot, and then only an existing account is changed.
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
