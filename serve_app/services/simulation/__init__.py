"""What test keys get: answers that depend only on the input; nothing is queried or computed."""
