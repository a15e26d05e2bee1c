-- Holds: they begin once and end once. Each function works on an account A, on what is stored of the
-- hold (`raw`, or false) under `key`, and on its `member` account|id; it answers a word, and the
-- hold as it is then if that has changed.
-- Stored are state, cost, final cost, its split into g, p, d, whether a job's (0|1), fingerprint.
local HOLD = '<sdddddB'
local ENTRY = {committed = 'commit', voided = 'void', reaped = 'reap'}
local score_of, score = nil, nil

local function packed_hold(state, cost, final, g, p, d, job, fp)
  return struct.pack(HOLD, state, cost, final, g, p, d, job) .. fp
end

-- OK | DUP:<state> | MISMATCH | NOFUNDS
local function reserve(A, raw, key, member, cost, ttl, monthly, floor, fp, job)
  if raw then
    local state, was, _, _, _, _, _, at = struct.unpack(HOLD, raw)
    if was ~= cost or string.sub(raw, at) ~= fp then return 'MISMATCH' end
    return 'DUP:' .. state
  end
  roll(A, monthly)
  local g, p, d = split(A, cost, floor)
  if not g then
    consider_topup(A, -1)
    return 'NOFUNDS'
  end
  note(A, 'reserve', member, -g, -p, d)
  A.h = A.h + cost
  consider_topup(A, A.g + A.p - A.d)
  local hold = packed_hold('held', cost, 0, g, p, d, job, fp)
  put(key, hold)
  -- Most holds of a script share a deadline: its text is made once.
  if score_of ~= ttl then
    score_of, score = ttl, string.format('%.0f', NOW + ttl)
  end
  local opened = A.shard.opened
  local n = #opened
  opened[n + 1], opened[n + 2] = score, member
  return 'OK', hold
end

-- End a hold as `state`: committed at `final` (all of it if that is below 0), or voided or reaped at
-- 0. What is over goes back, newest bucket first; debt that was repaid in the meantime stays repaid:
-- what it took returns as packs. A hold is reaped only after its deadline, and a job's never is: the
-- job itself ends it.
-- OK | DUP | OVER | EARLY | JOB | CLOSED:<state> | MISSING
local function settle(A, raw, key, member, state, final)
  if not raw then return 'MISSING' end
  local was, cost, at_cost, g, p, d, job, at = struct.unpack(HOLD, raw)
  if final < 0 then final = cost end
  if was == state and at_cost == final then return 'DUP' end
  if was ~= 'held' then return 'CLOSED:' .. was end
  if final > cost then return 'OVER' end
  if state == 'reaped' then
    if job == 1 then return 'JOB' end
    local deadline = redis.call('ZSCORE', A.due, member)
    if not deadline or tonumber(deadline) > NOW then return 'EARLY' end
  end
  roll(A, -1)
  local rest = cost - final
  local to_d = math.min(rest, d)
  local to_p = math.min(rest - to_d, p)
  give(A, ENTRY[state], member, rest - to_d - to_p, to_p + to_d)
  A.h = A.h - cost
  local hold = packed_hold(state, cost, final, g, p, d, job, string.sub(raw, at))
  put(key, hold)
  local closed = A.shard.closed
  closed[#closed + 1] = member
  return 'OK', hold
end

-- Count cache hits; those beyond the monthly allowance cost `price` each, or are refused. A charge
-- leaves a committed hold under the hits' id, so that it is made once.
-- OK:<credits> | NOFUNDS | OVER
local function count_hits(A, raw, key, member, hits, allowance, monthly, floor, price)
  if raw then
    local _, cost = struct.unpack(HOLD, raw)
    return 'OK:' .. cost
  end
  roll(A, monthly)
  local free = math.max(0, math.min(hits, allowance - A.lu))
  if hits > free and price < 0 then return 'OVER' end
  local cost, hold = (hits - free) * price, nil
  if cost > 0 then
    local g, p, d = split(A, cost, floor)
    if not g then
      consider_topup(A, -1)
      return 'NOFUNDS'
    end
    note(A, 'hit', member, -g, -p, d)
    consider_topup(A, A.g + A.p - A.d)
    hold = packed_hold('committed', cost, cost, g, p, d, 0, 'hit')
    put(key, hold)
  end
  A.lu = A.lu + hits
  return 'OK:' .. cost, hold
end
