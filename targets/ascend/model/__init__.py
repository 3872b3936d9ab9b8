"""The event-driven model of a kernel on the cores of one chip."""
