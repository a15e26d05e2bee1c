-- uses: clock
-- Return the time that all other scripts use, in ms.
return now_ms()
