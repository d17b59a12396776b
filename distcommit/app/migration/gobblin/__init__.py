"""Conversion of Apache Gobblin jobs: `properties` reads their files, the rules map each property, and `convert`
writes the job file. Must not connect to anything. Start reading at `convert`."""
