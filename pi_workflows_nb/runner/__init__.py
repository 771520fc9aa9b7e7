"""What runs inside child processes: the nursery, the entry points, the store that proposes to the server."""
