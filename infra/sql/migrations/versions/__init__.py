"""One file a revision; none is changed once released."""
