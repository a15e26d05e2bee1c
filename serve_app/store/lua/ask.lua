-- Ask many keys the same; those with nothing to say are left out of the answer.
-- KEYS: to ask. ARGV: a command that reads, and what follows its key.
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
