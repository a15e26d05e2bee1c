-- Hold a lock longer if it is still ours. KEYS: lock. ARGV: token, ms from now.
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
