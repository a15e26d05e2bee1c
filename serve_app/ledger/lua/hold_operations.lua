-- uses: clock calendar ledger topup holds
-- Carry out a list of operations on holds, in order; each succeeds or fails on its own.
-- KEYS: balance, due, journal, topup, intents of each account; then the holds.
-- ARGV: the operations, each packed as LAYOUT, grace ms, then the names of the accounts. An operation
-- gives account and hold as places, from 1; amount is a cost, a final cost or hits; term is a
-- time to live in ms or an allowance; price is a hit's, or -1; member is account|id. Layout and
-- commands are also in hold_operations.py.
-- Answers each operation's word, then each packed account as it is after all of them.
local LAYOUT = '<c1HHdddddss'
local RESERVE, COMMIT, VOID, REAP, HIT = 'r', 'c', 'v', 'x', 'h'
local PER_ACCOUNT, BEFORE_NAMES = 5, 2
local DO = {
  [RESERVE] = function(A, raw, key, member, cost, ttl, monthly, floor, grace_ms, _, fingerprint)
    return reserve(A, raw, key, member, cost, ttl, monthly, floor, grace_ms, fingerprint, 0)
  end,
  [COMMIT] = function(A, raw, key, member, final)
    return settle(A, raw, key, member, 'committed', final)
  end,
  [VOID] = function(A, raw, key, member) return settle(A, raw, key, member, 'voided', 0) end,
  [REAP] = function(A, raw, key, member) return settle(A, raw, key, member, 'reaped', 0) end,
  [HIT] = count_hits,
}

local KEYS, operations, grace_ms = KEYS, ARGV[1], tonumber(ARGV[2])
local unpack_operation = struct.unpack
local n_accounts = #ARGV - BEFORE_NAMES
local first_hold = PER_ACCOUNT * n_accounts
local wanted = {'MGET', unpack(KEYS, first_hold + 1)}
local n_holds = #KEYS - first_hold
for i = 1, n_accounts do wanted[n_holds + i + 1] = KEYS[PER_ACCOUNT * (i - 1) + 1] end
local found = redis.call(unpack(wanted))

local accounts = {}
for i = 1, n_accounts do
  local at = PER_ACCOUNT * (i - 1)
  accounts[i] = open_account(ARGV[BEFORE_NAMES + i], found[n_holds + i],
    unpack(KEYS, at + 1, at + PER_ACCOUNT))
end
local answers, n_answers, at, beyond = {}, 0, 1, #operations + 1
while at ~= beyond do
  local command, account, hold, amount, term, monthly, floor, price, member, fingerprint, next_at =
    unpack_operation(LAYOUT, operations, at)
  at = next_at
  local answer, changed = DO[command](accounts[account], found[hold], KEYS[first_hold + hold],
    member, amount, term, monthly, floor, grace_ms, price, fingerprint)
  if changed then found[hold] = changed end
  n_answers = n_answers + 1
  answers[n_answers] = answer
end
for i = 1, n_accounts do answers[n_answers + i] = close_account(accounts[i]) end
write_all()
return answers
