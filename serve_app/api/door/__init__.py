"""What happens before a route runs: checks of the caller, rate, body and repetition."""
