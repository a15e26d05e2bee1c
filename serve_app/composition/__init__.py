"""How the parts are put together: options, stores, services and the data folder."""
