-- The account and its journal. An account is fourteen packed doubles (all whole numbers):
--   g   monthly grant left        p   prepaid packs        d   debt
--   ns  since when d > 0 (ms)     per period (yyyymm)      pe  end of the period (ms)
--   pg  granted this period       mg  the tier's monthly grant
--   seq journal entries so far    lu  look-ups used this period
--   h   credits in open holds     oj  open jobs            fl  floor that d was last allowed
--   th  top-up threshold, -1 off
-- Packing instead of a hash or text: reading and writing it is a tenth of the work.
-- Every change of g, p, d goes through note(), so the balance is the sum of the journal.
local GRACE_MS = 86400000
local HOLD_KEPT_MS = 172800000
local ACCOUNT = '<dddddddddddddd'
local HOLD = '<sdddddB'
local A

local function load_account(raw)
  local g, p, d, ns, per, pe, pg, mg, seq, lu, h, oj, fl, th =
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1
  if raw then
    g, p, d, ns, per, pe, pg, mg, seq, lu, h, oj, fl, th = struct.unpack(ACCOUNT, raw)
  end
  A = {g = g, p = p, d = d, ns = ns, per = per, pe = pe, pg = pg, mg = mg, seq = seq, lu = lu,
    h = h, oj = oj, fl = fl, th = th}
end

local function packed_account()
  return struct.pack(ACCOUNT, A.g, A.p, A.d, A.ns, A.per, A.pe, A.pg, A.mg, A.seq, A.lu, A.h, A.oj,
    A.fl, A.th)
end

-- One journal entry: e = account, kind, id; v = number and the deltas of g, p, d; w = why.
local function note(acct, journal, now, kind, id, dg, dp, dd, why)
  A.g, A.p, A.d, A.seq = A.g + dg, A.p + dp, A.d + dd, A.seq + 1
  if A.d == 0 then
    A.ns = 0
  elseif A.ns == 0 then
    A.ns = now
  end
  local line, deltas = acct .. ' ' .. kind .. ' ' .. id, struct.pack('<dddd', A.seq, dg, dp, dd)
  if why then
    redis.call('XADD', journal, '*', 'e', line, 'v', deltas, 'w', why)
  else
    redis.call('XADD', journal, '*', 'e', line, 'v', deltas)
  end
end

-- Credits come in: they repay debt first.
local function give(acct, journal, now, kind, id, to_g, to_p, why)
  local pay = math.min(A.d, to_g + to_p)
  local from_p = math.min(pay, to_p)
  note(acct, journal, now, kind, id, to_g - (pay - from_p), to_p - from_p, -pay, why)
end

-- The first script of a month ends the old grant and brings the new one; a higher tier brings the
-- difference at once. monthly < 0: the tier is not known here, the last one told counts.
local function roll(acct, journal, now, monthly)
  if monthly >= 0 then A.mg = monthly end
  if now >= A.pe then
    if A.g > 0 then note(acct, journal, now, 'expire', string.format('%.0f', A.per), -A.g, 0, 0) end
    -- Year and month of a day, and the day a month begins (H. Hinnant, chrono-compatible dates);
    -- years begin in March here, days are counted from 0000-03-01.
    local day = math.floor(now / 86400000) + 719468
    local era = math.floor(day / 146097)
    local doe = day - era * 146097
    local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524)
      - math.floor(doe / 146096)) / 365)
    local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
    local mp = math.floor((5 * doy + 2) / 153)
    local next_doy = mp == 11 and 365 or math.floor((153 * (mp + 1) + 2) / 5)
    local next_yoe = yoe
    if mp == 11 then next_yoe, next_doy = yoe + 1, 0 end
    local next_day = era * 146097 + next_yoe * 365 + math.floor(next_yoe / 4)
      - math.floor(next_yoe / 100) + next_doy
    if next_yoe == 400 then next_day = (era + 1) * 146097 end
    A.per = (yoe + era * 400 + (mp >= 10 and 1 or 0)) * 100 + (mp < 10 and mp + 3 or mp - 9)
    A.pg, A.lu, A.pe = 0, 0, (next_day - 719468) * 86400000
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

-- A hold: state, cost, final cost, its split into g, p, d, whether a job's, fingerprint.
local function load_hold(raw)
  local state, cost, final, g, p, d, job, at = struct.unpack(HOLD, raw)
  return {state = state, cost = cost, final = final, g = g, p = p, d = d, job = job,
    fp = string.sub(raw, at)}
end

local function packed_hold(state, cost, final, g, p, d, job, fp)
  return struct.pack(HOLD, state, cost, final, g, p, d, job) .. fp
end

-- Give back what is over `final`, newest bucket first, and end the hold. Debt that was repaid in
-- the meantime stays repaid: what it took returns as packs. Caller writes the account. KEYS begin
-- with balance, hold, due, journal wherever this is used.
local function settle(acct, now, id, H, state, kind, final)
  local rest = H.cost - final
  local d = math.min(rest, H.d)
  local p = math.min(rest - d, H.p)
  give(acct, KEYS[4], now, kind, id, rest - d - p, p + d)
  A.h = A.h - H.cost
  redis.call('SET', KEYS[2], packed_hold(state, H.cost, final, H.g, H.p, H.d, H.job, H.fp),
    'PX', HOLD_KEPT_MS)
  redis.call('ZREM', KEYS[3], acct .. '\31' .. id)
end
