"""What a job of Apache Gobblin's is here: `properties` reads its files, `translation` says what each property comes to,
and `convert` makes the job file. Must not connect to anything. Start reading at `convert`.
"""
