"""What pods report of themselves: how they are given the recorder, and what follows from its reports."""
