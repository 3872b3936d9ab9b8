"""What a compilation says of itself: ``summary.json``, ``schedule.json``, ``trace.json``, ``report.html`` and the
table on the terminal.
"""
