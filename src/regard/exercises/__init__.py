"""Programming exercises of the courses: functions to write, graded by their results."""
