-- uses: history
-- Return whether a failover lost entries of a shard that are not yet restored, or may have lost some. That is
-- known once the shard has been compared with its archive. KEYS: lost, compared. Answers 1 or 0.
if redis.call('EXISTS', KEYS[1]) == 1 then return 1 end
local compared, id = redis.call('GET', KEYS[2]), history()
return compared and id and compared ~= id and 1 or 0
