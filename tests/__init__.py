"""What must hold of the package, and the programs that try to break it."""
