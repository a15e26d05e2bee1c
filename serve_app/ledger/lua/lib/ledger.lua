-- Accounts and their journal. An account is fourteen packed doubles (all whole numbers):
--   g   monthly grant left        p   prepaid packs        d   debt
--   ns  since when d > 0 (ms)     per period (yyyymm)      pe  end of the period (ms)
--   pg  granted this period       mg  the tier's monthly grant
--   seq journal entries so far    lu  look-ups used this period
--   h   credits in open holds     oj  open jobs            fl  floor that d was last allowed
--   th  top-up threshold, -1 off
-- Packing instead of a hash or text: reading and writing it is a tenth of the work.
-- Every change of g, p, d goes through note(), so the balance is the sum of the journal.
-- A script may work on many accounts: what it decides is collected here and written by write_all(),
-- one command per kind of write, however many operations there were.
local NOW = now_ms()
local GRACE_MS = 86400000
local ACCOUNT = '<dddddddddddddd'
local NO_ACCOUNT = struct.pack(ACCOUNT, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1)
local puts, n_puts, shards = {'MSET'}, 1, {}

local function put(key, value)
  puts[n_puts + 1], puts[n_puts + 2] = key, value
  n_puts = n_puts + 2
end

-- What is to be written of a shard.
local function shard_of(journal, due)
  local S = shards[journal]
  if not S then
    S = {lines = {}, deltas = {}, opened = {'ZADD', due}, closed = {'ZREM', due}}
    shards[journal] = S
  end
  return S
end

-- An account as a table with its keys; `raw` is its packed state or false.
local function open_account(name, raw, balance, due, journal, topup, intents)
  raw = raw or NO_ACCOUNT
  local g, p, d, ns, per, pe, pg, mg, seq, lu, h, oj, fl, th = struct.unpack(ACCOUNT, raw)
  return {name = name, raw = raw, balance = balance, due = due, topup = topup, intents = intents,
    shard = journal and shard_of(journal, due), g = g, p = p, d = d, ns = ns, per = per, pe = pe, pg = pg, mg = mg,
    seq = seq, lu = lu, h = h, oj = oj, fl = fl, th = th}
end

-- Give an account packed, and have it written if it has changed.
local function close_account(A)
  local packed = struct.pack(ACCOUNT, A.g, A.p, A.d, A.ns, A.per, A.pe, A.pg, A.mg, A.seq, A.lu,
    A.h, A.oj, A.fl, A.th)
  if packed ~= A.raw then put(A.balance, packed) end
  return packed
end

-- What is put twice is as it was put last. Ended holds have no time to live, which would take a
-- command each: the journal names them, and journal_trim.lua lists them to be forgotten.
local function write_all()
  if n_puts > 1 then redis.call(unpack(puts, 1, n_puts)) end
  for journal, S in pairs(shards) do
    if #S.opened > 2 then redis.call(unpack(S.opened)) end
    if #S.closed > 2 then redis.call(unpack(S.closed)) end
    if #S.lines > 0 then
      local entry = {'XADD', journal, '*', 'e', table.concat(S.lines, ' '),
        'v', struct.pack('<' .. string.rep('d', #S.deltas), unpack(S.deltas))}
      if S.why then entry[8], entry[9] = 'w', S.why end
      redis.call(unpack(entry))
    end
  end
end

-- One journal entry: kind and account|id stand in line, number and the deltas of g, p, d beside it.
local function note(A, kind, member, dg, dp, dd, why)
  A.g, A.p, A.d, A.seq = A.g + dg, A.p + dp, A.d + dd, A.seq + 1
  if A.d == 0 then
    A.ns = 0
  elseif A.ns == 0 then
    A.ns = NOW
  end
  local S = A.shard
  local lines, deltas = S.lines, S.deltas
  local l, n = #lines, #deltas
  lines[l + 1], lines[l + 2] = kind, member
  deltas[n + 1], deltas[n + 2], deltas[n + 3], deltas[n + 4] = A.seq, dg, dp, dd
  if why then S.why = why end
end

-- Credits come in: they repay debt first.
local function give(A, kind, member, to_g, to_p, why)
  local pay = math.min(A.d, to_g + to_p)
  local from_p = math.min(pay, to_p)
  note(A, kind, member, to_g - (pay - from_p), to_p - from_p, -pay, why)
end

-- The first script of a month ends the old grant and brings the new one; a higher tier brings the
-- difference at once. monthly < 0: the tier is not known here, the last one told counts.
local function roll(A, monthly)
  if monthly >= 0 then A.mg = monthly end
  if NOW >= A.pe then
    if A.g > 0 then note(A, 'expire', A.name .. '\31' .. A.per, -A.g, 0, 0) end
    -- Year and month of a day, and the day a month begins (H. Hinnant, chrono-compatible dates);
    -- years begin in March here, days are counted from 0000-03-01.
    local day = math.floor(NOW / 86400000) + 719468
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
    give(A, 'grant', A.name .. '\31' .. A.per, A.mg - A.pg, 0)
    A.pg = A.mg
  end
end

-- How cost splits over grant, packs and debt; nil when it may not be spent.
local function split(A, cost, floor)
  local g = math.min(A.g, cost)
  local p = math.min(A.p, cost - g)
  local d = cost - g - p
  if d > 0 then
    if A.d + d > floor then return nil end
    if A.ns > 0 and NOW - A.ns >= GRACE_MS then return nil end
    A.fl = floor
  end
  return g, p, d
end
