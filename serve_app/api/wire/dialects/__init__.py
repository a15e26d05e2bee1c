"""The shapes of other services, for clients of theirs that use this one."""
