-- The id of this server's history of writes: its replicas share it; one that takes over, or a server
-- that has started again, begins another. nil where the server keeps it to itself.
local function history()
  local told = redis.pcall('INFO', 'replication')
  return type(told) == 'string' and string.match(told, 'master_replid:(%x+)') or nil
end
