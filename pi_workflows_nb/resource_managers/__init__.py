"""Long-lived managed resources, reconciled towards their specs."""
