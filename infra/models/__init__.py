"""Models on disk: made ready, registered, checked."""
