-- uses: clock ledger topup holds
-- Do a list of operations on holds, in order; each succeeds or fails for itself.
-- KEYS: balance, due, journal, topup, intents of each account; then the hold of each operation.
-- ARGV: the operations, each packed as ITEM, then the names of the accounts. An operation is word,
-- place of its account, amount (cost, final cost or hits), term (ttl in ms or allowance), monthly
-- grant, floor, price of a hit or -1, account|id, fingerprint.
-- Answers each operation's word, then each account packed, as it is after all of them.
local ITEM = '<c1Hdddddss'
local DO = {
  r = function(A, raw, key, member, cost, ttl, monthly, floor, _, fp)
    return reserve(A, raw, key, member, cost, ttl, monthly, floor, fp, 0)
  end,
  c = commit,
  v = function(A, raw, key, member) return refund(A, raw, key, member, 'voided', 'void') end,
  x = function(A, raw, key, member) return refund(A, raw, key, member, 'reaped', 'reap') end,
  h = count_hits,
}

local KEYS, ARGV = KEYS, ARGV
local n_accounts = #ARGV - 1
local n_items = #KEYS - 5 * n_accounts
local wanted = {'MGET'}
for i = 1, n_accounts do wanted[i + 1] = KEYS[5 * i - 4] end
for i = 1, n_items do wanted[n_accounts + i + 1] = KEYS[5 * n_accounts + i] end
local found = redis.call(unpack(wanted))

local accounts = {}
for i = 1, n_accounts do
  accounts[i] = open_account(ARGV[i + 1], found[i], unpack(KEYS, 5 * i - 4, 5 * i))
end
local answers, holds, at = {}, {}, 1
for i = 1, n_items do
  local key = KEYS[5 * n_accounts + i]
  local word, place, amount, term, monthly, floor, price, member, fp
  word, place, amount, term, monthly, floor, price, member, fp, at =
    struct.unpack(ITEM, ARGV[1], at)
  local answer, hold = DO[word](accounts[place], holds[key] or found[n_accounts + i], key, member,
    amount, term, monthly, floor, price, fp)
  answers[i] = answer
  if hold then holds[key] = hold end
end
for i = 1, n_accounts do answers[n_items + i] = close_account(accounts[i]) end
write_all()
return answers
