"""When jobs are to run: timetables, and a schedule as a pure value.

It knows neither what a run is nor who launches it; what time it is, its caller says. It must not do I/O nor read a
clock. Start reading at `schedule`.
"""
