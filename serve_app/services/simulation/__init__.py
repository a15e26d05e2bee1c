"""What test keys get: answers that depend on the input alone; nothing is asked or computed."""
