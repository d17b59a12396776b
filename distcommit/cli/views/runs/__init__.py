"""Views of runs: the result of a run, recorded and live runs, dry runs and previews.

Must not read a store. Start reading at `run_result_view`.
"""
