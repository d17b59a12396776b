"""The ways of publishing one prepared tree: bare renames, ours, and what people run today."""
