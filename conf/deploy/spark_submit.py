"""The command as a program that spark-submit can start, in client and in cluster mode:

spark-submit --master yarn --deploy-mode cluster --files job.yaml conf/deploy/spark_submit.py run job.yaml
"""

from distcommit.cli.main import main

if __name__ == "__main__":
    main()
