"""Exercises of the courses: functions to write, graded by what they return."""
