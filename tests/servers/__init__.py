"""Real servers on loopback, for tests and manual trials: `python -m tests.servers
kafka|registry|hdfs|postgresql|spark|s3|azure|google|smb`.

Each server is a context manager that returns once it answers. Its processes end with it, also if the test run is
killed. `fixtures.py` has one of each per test session. The jars of Java servers come from Maven Central, pinned in
`maven/`, into a cache folder.
"""
