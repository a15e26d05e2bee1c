-- uses: clock lanes
-- What a new job of this owner would meet. ARGV: lane, owner.
-- Answers depth, owners in the ring, jobs of this owner that wait, mean service ms, mean busy.
local from = ARGV[1] .. SEP .. ARGV[2] .. SEP
return {
  tonumber(redis.call('HGET', DEPTH, ARGV[1]) or 0),
  redis.call('ZCARD', RING[ARGV[1]]),
  redis.call('ZLEXCOUNT', JOBS, '[' .. from, '[' .. from .. '\255'),
  redis.call('HGET', STATS, 'service') or '0',
  redis.call('HGET', STATS, 'busy') or '0',
}
