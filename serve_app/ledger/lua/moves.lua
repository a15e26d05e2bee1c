-- uses: clock ledger topup holds
-- Do a list of operations on holds, in order; each succeeds or fails for itself.
-- KEYS: balance, due, journal, topup, intents of each account; then the holds.
-- ARGV: the operations, each packed as ITEM, then the names of the accounts. An operation is word,
-- place of its account, place of its hold, amount (cost, final cost or hits), term (ttl in ms or
-- allowance), monthly grant, floor, price of a hit or -1, account|id, fingerprint.
-- Answers each operation's word, then each account packed, as it is after all of them.
local ITEM = '<c1HHdddddss'
local PER_ACCOUNT = 5
local DO = {
  r = function(A, raw, key, member, cost, ttl, monthly, floor, _, fp)
    return reserve(A, raw, key, member, cost, ttl, monthly, floor, fp, 0)
  end,
  c = function(A, raw, key, member, final)
    return settle(A, raw, key, member, 'committed', final)
  end,
  v = function(A, raw, key, member) return settle(A, raw, key, member, 'voided', 0) end,
  x = function(A, raw, key, member) return settle(A, raw, key, member, 'reaped', 0) end,
  h = count_hits,
}

local KEYS, items = KEYS, ARGV[1]
local unpack_item = struct.unpack
local n_accounts = #ARGV - 1
local first_hold = PER_ACCOUNT * n_accounts
local wanted = {'MGET', unpack(KEYS, first_hold + 1)}
local n_holds = #KEYS - first_hold
for i = 1, n_accounts do wanted[n_holds + i + 1] = KEYS[PER_ACCOUNT * (i - 1) + 1] end
local found = redis.call(unpack(wanted))

local accounts = {}
for i = 1, n_accounts do
  local at = PER_ACCOUNT * (i - 1)
  accounts[i] = open_account(ARGV[i + 1], found[n_holds + i], unpack(KEYS, at + 1, at + PER_ACCOUNT))
end
local answers, n_items, at, beyond = {}, 0, 1, #items + 1
while at ~= beyond do
  local word, account, place, amount, term, monthly, floor, price, member, fp
  word, account, place, amount, term, monthly, floor, price, member, fp, at =
    unpack_item(ITEM, items, at)
  local answer, hold = DO[word](accounts[account], found[place], KEYS[first_hold + place], member,
    amount, term, monthly, floor, price, fp)
  if hold then found[place] = hold end
  n_items = n_items + 1
  answers[n_items] = answer
end
for i = 1, n_accounts do answers[n_items + i] = close_account(accounts[i]) end
write_all()
return answers
