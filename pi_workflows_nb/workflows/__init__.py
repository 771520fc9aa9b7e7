"""Writing workflows, and the engine that walks their graphs."""
