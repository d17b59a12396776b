"""The commands, a module for those that belong together.

Must not do the work itself: `app` does. Start reading at `running`.
"""
