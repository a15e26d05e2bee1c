-- The replication id of this server, which its replicas share. A replica that takes over begins a new
-- one, as does a server that was restarted, got its first replica or was without one for an hour.
-- nil if the server does not report it.
local function history()
  local told = redis.pcall('INFO', 'replication')
  return type(told) == 'string' and string.match(told, 'master_replid:(%x+)') or nil
end
