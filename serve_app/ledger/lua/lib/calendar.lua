-- Return the month of a time as yyyymm, and when it ends (ms). After H. Hinnant, chrono-compatible dates:
-- years begin in March here, days are counted from 0000-03-01, and 400 years are an era.
local function month_of(ms)
  local day = math.floor(ms / 86400000) + 719468
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
  local month = (yoe + era * 400 + (mp >= 10 and 1 or 0)) * 100 + (mp < 10 and mp + 3 or mp - 9)
  return month, (next_day - 719468) * 86400000
end
