"""Conversion of Apache Gobblin jobs to job files: `read_properties` reads their files, `conversion_rules` converts each
property. Must not connect to anything. Start reading at `convert_gobblin_job`.
"""
