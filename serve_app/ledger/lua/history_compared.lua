-- uses: history
-- Note that a shard has been compared with its archive, unless another server has taken over since it
-- was read. KEYS: compared. ARGV: replication id of the server that was compared.
if history() == ARGV[1] then redis.call('SET', KEYS[1], ARGV[1]) end
