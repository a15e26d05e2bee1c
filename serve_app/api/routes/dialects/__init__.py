"""Routes in the shapes of other services, so that their clients ask us unchanged."""
