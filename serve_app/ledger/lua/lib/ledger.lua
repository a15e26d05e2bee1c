-- Accounts and their journal. An account is fifteen packed doubles (all whole numbers), in this
-- order, which AccountState in packed.py has too:
--   grant            monthly grant left
--   packs            prepaid packs
--   debt             used of the grace
--   negative_since   when the debt began (ms), 0 while there is none
--   period           month that grant and look-ups belong to (yyyymm)
--   period_ends      when it ends (ms)
--   granted          granted this period
--   monthly_grant    of the plan
--   journal_length   entries so far
--   lookups_used     in this period
--   held             credits in open holds
--   open_jobs
--   floor            debt that was allowed when it was last made
--   topup_threshold  -1: off
--   has_plan         1: monthly_grant was set by tier_set.lua; 0: the caller that charges passes it
-- Packed instead of a hash or text, since reading and writing it is a tenth of the work. Fields have names
-- instead of numbers: those would be upvalues, which cost time in each call.
local ACCOUNT = '<ddddddddddddddd'
local NO_ACCOUNT = struct.pack(ACCOUNT, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 0)
-- Format 1 had no has_plan.
local FORMAT_1, NO_PLAN = 14 * 8, struct.pack('<d', 0)

-- Every change of grant, packs and debt goes through note(), so the balance is the sum of the
-- journal. A script may work on many accounts: what it decides is collected here and written by
-- write_all(), one command per kind of write, however many operations there were.
local NOW = now_ms()
local puts, n_puts, shards, passing = {}, 0, {}, {}

local function put(key, value)
  puts[n_puts + 1], puts[n_puts + 2] = key, value
  n_puts = n_puts + 2
end

-- A value that is only kept for some milliseconds.
local function put_for(ms, key, value) passing[#passing + 1] = {'SET', key, value, 'PX', ms} end

-- What is to be written to a shard.
local function shard_of(journal, due)
  local S = shards[journal]
  if not S then
    S = {due = due, lines = {}, deltas = {}, images = {}, opened = {}, closed = {}}
    shards[journal] = S
  end
  return S
end

-- The journal keeps what an account (a), a hold (h), its deadline (d) and a top-up (t) are afterwards,
-- so a reader of the journal need not compute the state; and why (w) an account was corrected.
local function keep(S, name, image)
  local images = S.images
  local n = #images
  images[n + 1], images[n + 2] = name, image
end

-- An account as a table with its keys; `raw` is its packed state or false.
local function open_account(name, raw, balance, due, journal, topup, intents)
  raw = raw or NO_ACCOUNT
  if #raw == FORMAT_1 then raw = raw .. NO_PLAN end
  local grant, packs, debt, negative_since, period, period_ends, granted, monthly_grant,
    journal_length, lookups_used, held, open_jobs, floor, topup_threshold,
    has_plan = struct.unpack(ACCOUNT, raw)
  return {name = name, raw = raw, balance = balance, due = due, topup = topup, intents = intents,
    shard = journal and shard_of(journal, due), grant = grant, packs = packs, debt = debt,
    negative_since = negative_since, period = period, period_ends = period_ends, granted = granted,
    monthly_grant = monthly_grant, journal_length = journal_length, lookups_used = lookups_used,
    held = held, open_jobs = open_jobs, floor = floor, topup_threshold = topup_threshold,
    has_plan = has_plan}
end

-- Return an account packed, and have it written if it has changed.
local function close_account(A)
  local packed = struct.pack(ACCOUNT, A.grant, A.packs, A.debt, A.negative_since, A.period,
    A.period_ends, A.granted, A.monthly_grant, A.journal_length, A.lookups_used, A.held,
    A.open_jobs, A.floor, A.topup_threshold, A.has_plan)
  if packed ~= A.raw then
    put(A.balance, packed)
    keep(A.shard, 'a' .. A.name, packed)
  end
  return packed
end

-- Lua hands over fewer than 8,000 words at once, and one account may lose more holds than that in a
-- failover. Words may be pairs, so this is even.
local MOST = 4000

local function send(command, key, words)
  for at = 1, #words, MOST do
    redis.call(command, key, unpack(words, at, math.min(#words, at + MOST - 1)))
  end
end

-- If a key was put twice, the last value counts. Ended holds get no time to live, which would take a
-- command each: the journal names them, and journal_trim.lua lists them to be forgotten. Images that do
-- not fit into one call of the journal go ahead in calls without entries; the last image is an account's,
-- which stays with its entries.
local function write_all()
  for at = 1, n_puts, MOST do
    redis.call('MSET', unpack(puts, at, math.min(n_puts, at + MOST - 1)))
  end
  for i = 1, #passing do redis.call(unpack(passing[i])) end
  for journal, S in pairs(shards) do
    send('ZADD', S.due, S.opened)
    send('ZREM', S.due, S.closed)
    local images, first = S.images, 1
    for last = MOST, #images - 1, MOST do
      redis.call('XADD', journal, '*', 'e', '', 'v', '', unpack(images, first, last))
      first = first + MOST
    end
    if #S.lines > 0 or #images > 0 then
      redis.call('XADD', journal, '*', 'e', table.concat(S.lines, ' '),
        'v', struct.pack('<' .. string.rep('d', #S.deltas), unpack(S.deltas)), unpack(images, first))
    end
  end
end

-- Write one journal entry: its kind and account|id as text, and as numbers its place in the account's
-- journal and what it adds to grant, packs and debt.
local function note(A, kind, member, to_grant, to_packs, to_debt, why)
  A.grant, A.packs, A.debt = A.grant + to_grant, A.packs + to_packs, A.debt + to_debt
  A.journal_length = A.journal_length + 1
  if A.debt == 0 then
    A.negative_since = 0
  elseif A.negative_since == 0 then
    A.negative_since = NOW
  end
  local S = A.shard
  local lines, deltas = S.lines, S.deltas
  local l, n = #lines, #deltas
  lines[l + 1], lines[l + 2] = kind, member
  deltas[n + 1], deltas[n + 2] = A.journal_length, to_grant
  deltas[n + 3], deltas[n + 4] = to_packs, to_debt
  if why then keep(S, 'w', why) end
end

-- Credits come in: they repay debt first.
local function give(A, kind, member, to_grant, to_packs, why)
  local pay = math.min(A.debt, to_grant + to_packs)
  local from_packs = math.min(pay, to_packs)
  note(A, kind, member, to_grant - (pay - from_packs), to_packs - from_packs, -pay, why)
end

-- Now, or the latest time that the keeper's clock has confirmed (serve_app/ledger/clock.py), if that is
-- earlier, so that a server whose clock is ahead begins no month. The key is in the account's slot.
local function confirmed_now(A)
  local latest = redis.call('GET', string.match(A.balance, '^cr:{[^}]*}:') .. 'latest')
  return latest and math.min(NOW, tonumber(latest)) or NOW
end

-- The first script of a month ends the old grant and adds the new one, that of the account's plan
-- at that time; a higher plan adds the difference at once. monthly: the grant that the caller assumes
-- for the plan, or -1; it counts until tier_set.lua has set the account's plan.
local function roll(A, monthly)
  if A.has_plan == 0 and monthly >= 0 then A.monthly_grant = monthly end
  local now = NOW < A.period_ends and NOW or confirmed_now(A)
  if now >= A.period_ends then
    if A.grant > 0 then note(A, 'expire', A.name .. '\31' .. A.period, -A.grant, 0, 0) end
    A.period, A.period_ends = month_of(now)
    A.granted, A.lookups_used = 0, 0
  end
  if A.monthly_grant > A.granted then
    give(A, 'grant', A.name .. '\31' .. A.period, A.monthly_grant - A.granted, 0)
    A.granted = A.monthly_grant
  end
end

-- Split a cost into grant, packs and debt; nil if it may not be spent: debt stays within floor, and
-- no more is made once it has lasted for the grace period.
local function split(A, cost, floor, grace_ms)
  local grant = math.min(A.grant, cost)
  local packs = math.min(A.packs, cost - grant)
  local debt = cost - grant - packs
  if debt > 0 then
    if A.debt + debt > floor then return nil end
    if A.negative_since > 0 and NOW - A.negative_since >= grace_ms then return nil end
    A.floor = floor
  end
  return grant, packs, debt
end
