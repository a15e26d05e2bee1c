-- Run one reading command on many keys; empty answers are left out.
-- KEYS: the keys. ARGV: the command, and its arguments after the key.
-- Answers {place, answer, …}, places from 1.
local function says_something(answer)
  if type(answer) ~= 'table' then
    return answer and answer ~= 0
  end
  for _, part in ipairs(answer) do
    if part then
      return true
    end
  end
  return false
end

local found = {}
for place, key in ipairs(KEYS) do
  local answer = redis.call(ARGV[1], key, unpack(ARGV, 2))
  if says_something(answer) then
    found[#found + 1] = place
    found[#found + 1] = answer
  end
end
return found
