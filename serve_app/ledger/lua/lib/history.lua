-- The id of this server's history of writes, which its replicas share. One that takes over begins
-- another, as does a server that has started again, got its first replica or been without one for an
-- hour. nil where the server keeps it to itself.
local function history()
  local told = redis.pcall('INFO', 'replication')
  return type(told) == 'string' and string.match(told, 'master_replid:(%x+)') or nil
end
