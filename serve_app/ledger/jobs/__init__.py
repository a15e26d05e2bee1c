"""Jobs: records, the lanes they wait in, the sweep that recovers them, and webhooks."""
