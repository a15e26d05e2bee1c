"""The shapes of other services, whose clients ask this one."""
