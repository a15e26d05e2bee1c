"""What happens before a route runs: who asks, how often, with what body, and whether again."""
