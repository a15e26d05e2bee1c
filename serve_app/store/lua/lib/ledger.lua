-- The account and its journal. An account is one packed string of whole numbers:
--   g   monthly grant left        p   prepaid packs        d   debt
--   ns  since when d > 0 (ms)     per period (yyyymm)      pe  end of the period (ms)
--   pg  granted this period       mg  the tier's monthly grant
--   seq journal entries so far    lu  look-ups used this period
--   h   credits in open holds     oj  open jobs            fl  floor that d was last allowed
--   th  top-up threshold, -1 off
-- Every change of g, p, d goes through note(), so the balance is the sum of the journal.
local GRACE_MS = 86400000
local HOLD_KEPT_MS = 172800000
local NUMBER = '(%-?%d+)'
local ACCOUNT = '^' .. string.rep(NUMBER .. ' ', 13) .. NUMBER .. '$'
local PACKED = string.rep('%.0f ', 13) .. '%.0f'
local A = {}

local function load_account(raw)
  if raw then
    local g, p, d, ns, per, pe, pg, mg, seq, lu, h, oj, fl, th = string.match(raw, ACCOUNT)
    A.g, A.p, A.d, A.ns, A.per = tonumber(g), tonumber(p), tonumber(d), tonumber(ns), tonumber(per)
    A.pe, A.pg, A.mg = tonumber(pe), tonumber(pg), tonumber(mg)
    A.seq, A.lu, A.h, A.oj = tonumber(seq), tonumber(lu), tonumber(h), tonumber(oj)
    A.fl, A.th = tonumber(fl), tonumber(th)
  else
    A.g, A.p, A.d, A.ns, A.per, A.pe, A.pg, A.mg = 0, 0, 0, 0, 0, 0, 0, 0
    A.seq, A.lu, A.h, A.oj, A.fl, A.th = 0, 0, 0, 0, 0, -1
  end
end

local function packed_account()
  return string.format(PACKED, A.g, A.p, A.d, A.ns, A.per, A.pe, A.pg, A.mg, A.seq, A.lu, A.h,
    A.oj, A.fl, A.th)
end

-- One journal line: account, number, kind, id, and the deltas of g, p, d.
local function note(acct, journal, now, kind, id, dg, dp, dd, why)
  A.g, A.p, A.d, A.seq = A.g + dg, A.p + dp, A.d + dd, A.seq + 1
  if A.d == 0 then
    A.ns = 0
  elseif A.ns == 0 then
    A.ns = now
  end
  -- + 0 turns -0 into 0.
  local line = string.format('%s %.0f %s %s %.0f %.0f %.0f', acct, A.seq, kind, id, dg + 0, dp + 0,
    dd + 0)
  if why then
    redis.call('XADD', journal, '*', 'e', line, 'w', why)
  else
    redis.call('XADD', journal, '*', 'e', line)
  end
end

-- Credits come in: they repay debt first.
local function give(acct, journal, now, kind, id, to_g, to_p, why)
  local pay = math.min(A.d, to_g + to_p)
  local from_p = math.min(pay, to_p)
  note(acct, journal, now, kind, id, to_g - (pay - from_p), to_p - from_p, -pay, why)
end

-- Days since 1970 to (year, month), and back for a month's first day (H. Hinnant, chrono dates).
local function month_of(now)
  local z = math.floor(now / 86400000) + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524)
    - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local m = mp < 10 and mp + 3 or mp - 9
  return yoe + era * 400 + (m <= 2 and 1 or 0), m
end

local function month_start_ms(y, m)
  if m <= 2 then y = y - 1 end
  local era = math.floor(y / 400)
  local yoe = y - era * 400
  local doy = math.floor((153 * (m > 2 and m - 3 or m + 9) + 2) / 5)
  local doe = yoe * 365 + math.floor(yoe / 4) - math.floor(yoe / 100) + doy
  return (era * 146097 + doe - 719468) * 86400000
end

-- The first script of a month ends the old grant and brings the new one; a higher tier brings the
-- difference at once. monthly < 0: the tier is not known here, the last one told counts.
local function roll(acct, journal, now, monthly)
  if monthly >= 0 then A.mg = monthly end
  if now >= A.pe then
    if A.g > 0 then note(acct, journal, now, 'expire', string.format('%.0f', A.per), -A.g, 0, 0) end
    local y, m = month_of(now)
    A.per, A.pg, A.lu = y * 100 + m, 0, 0
    A.pe = m == 12 and month_start_ms(y + 1, 1) or month_start_ms(y, m + 1)
  end
  if A.mg > A.pg then
    give(acct, journal, now, 'grant', string.format('%.0f', A.per), A.mg - A.pg, 0)
    A.pg = A.mg
  end
end

-- How cost splits over grant, packs and debt; nil when it may not be spent.
local function split(now, cost, floor)
  local g = math.min(A.g, cost)
  local p = math.min(A.p, cost - g)
  local d = cost - g - p
  if d > 0 then
    if A.d + d > floor then return nil end
    if A.ns > 0 and now - A.ns >= GRACE_MS then return nil end
    A.fl = floor
  end
  return g, p, d
end

-- A hold is 'state cost final g p d job fingerprint'.
local function load_hold(raw)
  local state, cost, final, g, p, d, job, fp =
    string.match(raw, '^(%a+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (.*)$')
  return {state = state, cost = tonumber(cost), final = tonumber(final), g = tonumber(g),
    p = tonumber(p), d = tonumber(d), job = job, fp = fp}
end

local function packed_hold(state, cost, final, g, p, d, job, fp)
  return string.format('%s %.0f %.0f %.0f %.0f %.0f %s %s', state, cost, final, g, p, d, job, fp)
end

-- Give back what is over `final`, newest bucket first, and end the hold. Debt that was repaid in
-- the meantime stays repaid: what it took returns as packs. Caller writes the account.
local function settle(acct, keys, now, id, H, state, kind, final)
  local rest = H.cost - final
  local d = math.min(rest, H.d)
  local p = math.min(rest - d, H.p)
  give(acct, keys.journal, now, kind, id, rest - d - p, p + d)
  A.h = A.h - H.cost
  redis.call('SET', keys.hold, packed_hold(state, H.cost, final, H.g, H.p, H.d, H.job, H.fp),
    'PX', HOLD_KEPT_MS)
  redis.call('ZREM', keys.due, acct .. '\31' .. id)
end
