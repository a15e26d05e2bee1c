-- Forget holds that ended long ago. KEYS: ended, then the holds that its first batches name.
-- ARGV: those batches as they were read; a second caller finds different ones and does nothing.
-- Answers the number of holds.
for i, batch in ipairs(ARGV) do
  if redis.call('LINDEX', KEYS[1], i - 1) ~= batch then return 0 end
end
redis.call('LTRIM', KEYS[1], #ARGV, -1)
redis.call('UNLINK', unpack(KEYS, 2))
return #KEYS - 1
