-- Holds: they begin once and end once. Each function works on an account A, on what is stored of the
-- hold (`raw`, or false) under `key`, and on its `member` account|id; it answers a word, and the
-- hold as it is then if that has changed.
local HOLD = '<sdddddB'
local scores = {}

-- State, cost, final cost, its split into g, p, d, whether a job's (0|1), fingerprint.
local function load_hold(raw)
  local state, cost, final, g, p, d, job, at = struct.unpack(HOLD, raw)
  return {state = state, cost = cost, final = final, g = g, p = p, d = d, job = job,
    fp = string.sub(raw, at)}
end

local function packed_hold(state, cost, final, g, p, d, job, fp)
  return struct.pack(HOLD, state, cost, final, g, p, d, job) .. fp
end

-- OK | DUP:<state> | MISMATCH | NOFUNDS
local function reserve(A, raw, key, member, cost, ttl, monthly, floor, fp, job)
  if raw then
    local H = load_hold(raw)
    if H.cost ~= cost or H.fp ~= fp then return 'MISMATCH' end
    return 'DUP:' .. H.state
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
  scores[ttl] = scores[ttl] or string.format('%.0f', NOW + ttl)
  local opened = shard_of(A).opened
  local n = #opened
  opened[n + 1], opened[n + 2] = scores[ttl], member
  return 'OK', hold
end

-- Give back what is over `final`, newest bucket first, and end the hold. Debt that was repaid in
-- the meantime stays repaid: what it took returns as packs.
local function settle(A, H, key, member, state, kind, final)
  local rest = H.cost - final
  local d = math.min(rest, H.d)
  local p = math.min(rest - d, H.p)
  give(A, kind, member, rest - d - p, p + d)
  A.h = A.h - H.cost
  local hold = packed_hold(state, H.cost, final, H.g, H.p, H.d, H.job, H.fp)
  ended[key] = hold
  local closed = shard_of(A).closed
  closed[#closed + 1] = member
  return 'OK', hold
end

-- Charge a hold: `final`, or all of it when that is below 0.
-- OK | DUP | OVER | CLOSED:<state> | MISSING
local function commit(A, raw, key, member, final)
  if not raw then return 'MISSING' end
  local H = load_hold(raw)
  if final < 0 then final = H.cost end
  if H.state == 'committed' and H.final == final then return 'DUP' end
  if H.state ~= 'held' then return 'CLOSED:' .. H.state end
  if final > H.cost then return 'OVER' end
  roll(A, -1)
  return settle(A, H, key, member, 'committed', 'commit', final)
end

-- Refund a hold ('voided', 'void'), or do so because its deadline has passed ('reaped', 'reap').
-- A job's hold is never reaped: the job itself ends it.
-- OK | DUP | EARLY | JOB | CLOSED:<state> | MISSING
local function refund(A, raw, key, member, state, kind)
  if not raw then return 'MISSING' end
  local H = load_hold(raw)
  if H.state == state then return 'DUP' end
  if H.state ~= 'held' then return 'CLOSED:' .. H.state end
  if kind == 'reap' then
    if H.job == 1 then return 'JOB' end
    local deadline = redis.call('ZSCORE', A.due, member)
    if not deadline or tonumber(deadline) > NOW then return 'EARLY' end
  end
  roll(A, -1)
  return settle(A, H, key, member, state, kind, 0)
end

-- Count cache hits; those beyond the monthly allowance cost `price` each, or are refused. A charge
-- leaves a committed hold under the hits' id, so that it is made once.
-- OK:<credits> | NOFUNDS | OVER
local function count_hits(A, raw, key, member, hits, allowance, monthly, floor, price)
  if raw then return 'OK:' .. load_hold(raw).cost end
  roll(A, monthly)
  local free = math.max(0, math.min(hits, allowance - A.lu))
  if hits > free and price < 0 then return 'OVER' end
  local cost, hold = (hits - free) * price, nil
  if cost > 0 then
    local g, p, d = split(A, cost, floor)
    if not g then return 'NOFUNDS' end
    note(A, 'hit', member, -g, -p, d)
    hold = packed_hold('committed', cost, cost, g, p, d, 0, 'hit')
    ended[key] = hold
  end
  A.lu = A.lu + hits
  return 'OK:' .. cost, hold
end
