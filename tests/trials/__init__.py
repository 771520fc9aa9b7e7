"""Random kills of everything that works on a run, and a check that nothing of it was lost, repeated or left over.

`python -m tests.trials --count 200` runs the long form, `test_kill_trials.py` the short one.
"""
