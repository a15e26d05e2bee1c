-- uses: clock calendar ledger
-- Read an account after bringing its month up to date. KEYS: balance, journal.
-- ARGV: account, monthly grant or -1.
local A = open_account(ARGV[1], redis.call('GET', KEYS[1]), KEYS[1], nil, KEYS[2])
roll(A, tonumber(ARGV[2]))
local packed = close_account(A)
write_all()
return packed
