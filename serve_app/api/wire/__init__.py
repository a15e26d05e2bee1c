"""The shapes of requests and answers, and the mapping of values into them."""
