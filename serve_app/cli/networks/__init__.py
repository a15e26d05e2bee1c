"""Networks of one's own: the template, and the commands that write and check it."""
