"""Your own networks: the template, and the commands that write and check it."""
