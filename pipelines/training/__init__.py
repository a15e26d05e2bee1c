"""Train afa's own networks on rendered music; the service never imports this package."""
