"""Published providers: each module plays one, after its documents."""
