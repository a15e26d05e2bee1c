"""What the service is about, as plain types: errors, tiers, prices, jobs, credits, identifiers."""
