-- Fix the calls of the archive's next segment: every exporter gets the same calls until they are
-- trimmed. KEYS: journal, base.
-- ARGV: marks (exported and reconciled, or '') as they were before the archive was listed, maximum of calls.
-- Answers the calls, maybe none, or STALE if another exporter has run since.
local found = redis.call('HMGET', KEYS[2], 'claimed', 'exported', 'reconciled')
if (found[2] or '') ~= ARGV[1] or (found[3] or '') ~= ARGV[2] then return 'STALE' end
if found[1] then return redis.call('XRANGE', KEYS[1], '-', found[1]) end
local calls = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', ARGV[3])
if calls[1] then redis.call('HSET', KEYS[2], 'claimed', calls[#calls][1]) end
return calls
