"""The HTTP face: routes, schemas, and the one place that turns errors into responses."""
