"""The service under test: the real API over filled stores, and load on it."""
