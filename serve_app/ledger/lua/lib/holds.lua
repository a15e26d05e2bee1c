-- Holds: each begins once and ends once. A function here takes an account A, the hold stored under
-- `key` (`raw`, or false) and its `member` account|id; it returns a word and, if the hold has changed,
-- the new hold.
-- Stored are state, cost, final cost, its split into grant, packs and debt, whether it is a job's (0|1),
-- and fingerprint.
local HOLD = '<sdddddB'
local ENTRY = {committed = 'commit', voided = 'void', reaped = 'reap'}
local score_of, score = nil, nil

local function put_hold(A, key, member, hold)
  put(key, hold)
  keep(A.shard, 'h' .. member, hold)
end

local function packed_hold(state, cost, final, grant, packs, debt, job, fingerprint)
  return struct.pack(HOLD, state, cost, final, grant, packs, debt, job) .. fingerprint
end

-- OK | DUP:<state> | MISMATCH | NOFUNDS
local function reserve(A, raw, key, member, cost, ttl, monthly, floor, grace_ms, fingerprint, job)
  if raw then
    local state, was, _, _, _, _, _, at = struct.unpack(HOLD, raw)
    if was ~= cost or string.sub(raw, at) ~= fingerprint then return 'MISMATCH' end
    return 'DUP:' .. state
  end
  roll(A, monthly)
  local grant, packs, debt = split(A, cost, floor, grace_ms)
  if not grant then
    consider_topup(A, -1)
    return 'NOFUNDS'
  end
  note(A, 'reserve', member, -grant, -packs, debt)
  A.held = A.held + cost
  consider_topup(A, A.grant + A.packs - A.debt)
  local hold = packed_hold('held', cost, 0, grant, packs, debt, job, fingerprint)
  put_hold(A, key, member, hold)
  -- Most holds of a script share a deadline, so its text is made once.
  if score_of ~= ttl then
    score_of, score = ttl, string.format('%.0f', NOW + ttl)
  end
  local opened = A.shard.opened
  local n = #opened
  opened[n + 1], opened[n + 2] = score, member
  keep(A.shard, 'd' .. member, score)
  return 'OK', hold
end

-- End a hold as `state`: committed at `final` (the whole cost if below 0), or voided or reaped at 0.
-- The rest goes back in the order debt, packs, grant; debt that was repaid in the meantime stays repaid,
-- and its part comes back as packs. A hold is reaped only after its deadline, and a job's hold never:
-- the job itself ends it.
-- OK | DUP | OVER | EARLY | JOB | CLOSED:<state> | MISSING
local function settle(A, raw, key, member, state, final)
  if not raw then return 'MISSING' end
  local was, cost, at_cost, grant, packs, debt, job, at = struct.unpack(HOLD, raw)
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
  local to_debt = math.min(rest, debt)
  local to_packs = math.min(rest - to_debt, packs)
  give(A, ENTRY[state], member, rest - to_debt - to_packs, to_packs + to_debt)
  A.held = A.held - cost
  local hold = packed_hold(state, cost, final, grant, packs, debt, job, string.sub(raw, at))
  put_hold(A, key, member, hold)
  local closed = A.shard.closed
  closed[#closed + 1] = member
  return 'OK', hold
end

-- Give back what a committed hold cost, since its job failed after all; the hold is then voided.
local function refund(A, raw, key, member)
  local _, cost, final, grant, packs, debt, job, at = struct.unpack(HOLD, raw)
  roll(A, -1)
  local to_grant = math.min(final, grant)
  give(A, 'refund', member, to_grant, final - to_grant)
  put_hold(A, key, member,
    packed_hold('voided', cost, 0, grant, packs, debt, job, string.sub(raw, at)))
end

local FREE_HIT_KEPT_MS = 600000
local free_hit = nil

-- Count cache hits; those beyond the monthly allowance cost `price` each, or are refused. They leave
-- a committed hold under their id, so that they count once. That of free hits, which are very many and
-- not in the journal, is kept only for a time: longer than a dead process keeps an idempotency key.
-- OK:<credits> | NOFUNDS | OVER
local function count_hits(A, raw, key, member, hits, allowance, monthly, floor, grace_ms, price)
  if raw then
    local _, cost = struct.unpack(HOLD, raw)
    return 'OK:' .. cost
  end
  roll(A, monthly)
  local free = math.max(0, math.min(hits, allowance - A.lookups_used))
  if hits > free and price < 0 then return 'OVER' end
  local cost, hold = (hits - free) * price, nil
  if cost > 0 then
    local grant, packs, debt = split(A, cost, floor, grace_ms)
    if not grant then
      consider_topup(A, -1)
      return 'NOFUNDS'
    end
    note(A, 'hit', member, -grant, -packs, debt)
    consider_topup(A, A.grant + A.packs - A.debt)
    hold = packed_hold('committed', cost, cost, grant, packs, debt, 0, 'hit')
    put_hold(A, key, member, hold)
  else
    free_hit = free_hit or packed_hold('committed', 0, 0, 0, 0, 0, 0, 'hit')
    hold = free_hit
    put_for(FREE_HIT_KEPT_MS, key, hold)
  end
  A.lookups_used = A.lookups_used + hits
  return 'OK:' .. cost, hold
end
