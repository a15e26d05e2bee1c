-- uses: clock
-- Read an API key. KEYS: key record.
-- Answers {owner, key id, scopes, is test, digest, ms it is still valid or -1} or {} if the key is not valid.
local f = redis.call('HMGET', KEYS[1], 'owner', 'key_id', 'scopes', 'test', 'digest', 'not_after',
  'revoked')
if not f[1] or f[7] then return {} end
if not f[6] then return {f[1], f[2], f[3], f[4], f[5], -1} end
local left = tonumber(f[6]) - now_ms()
if left <= 0 then return {} end
return {f[1], f[2], f[3], f[4], f[5], left}
