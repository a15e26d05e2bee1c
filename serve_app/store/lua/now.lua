-- uses: clock
-- The time that all other scripts go by, in ms.
return now_ms()
