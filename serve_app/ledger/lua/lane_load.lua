-- uses: clock lanes
-- Return what a new job of this owner would find ahead of it. ARGV: lane, owner.
-- Answers depth, owners in the ring, waiting jobs of this owner, mean service ms, mean busy.
local from = ARGV[1] .. SEP .. ARGV[2] .. SEP
return {
  tonumber(redis.call('HGET', DEPTH, ARGV[1]) or 0),
  redis.call('ZCARD', RING[ARGV[1]]),
  redis.call('ZLEXCOUNT', JOBS, '[' .. from, '[' .. from .. '\255'),
  redis.call('HGET', STATS, 'service') or '0',
  redis.call('HGET', STATS, 'busy') or '0',
}
