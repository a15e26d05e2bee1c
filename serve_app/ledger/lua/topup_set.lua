-- uses: clock calendar ledger topup
-- Set up automatic top-up, or switch it off. KEYS: balance, topup, journal.
-- ARGV: account, 1 on | 0 off, threshold, pack, price, cap, why it is off.
-- An open intent stays open: its charge may already have been made.
local A = open_account(ARGV[1], redis.call('GET', KEYS[1]), KEYS[1], nil, KEYS[3])
A.topup_threshold = ARGV[2] == '1' and tonumber(ARGV[3]) or -1
if ARGV[2] == '1' then
  redis.call('HSET', KEYS[2], 'on', 1, 'th', ARGV[3], 'pack', ARGV[4], 'price', ARGV[5],
    'cap', ARGV[6], 'fails', 0)
  redis.call('HDEL', KEYS[2], 'off')
else
  redis.call('HSET', KEYS[2], 'on', 0, 'off', ARGV[7])
end
close_account(A)
keep_topup(A.shard, KEYS[2], ARGV[1])
write_all()
return 1
