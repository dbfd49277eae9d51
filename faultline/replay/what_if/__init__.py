"""What an edit would have changed: the same records decided twice, and what differs, with why.

`edits` says what is edited, `sides` makes the two sides, `decide` replays each in a process of its own, `causes` and `summary`
tell of the differences, and `structure` answers how much other spares, checkpoints and drains would have saved.
"""
