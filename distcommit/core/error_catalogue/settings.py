"""Errors of the job file, of arguments, folders and the environment."""

from __future__ import annotations

from distcommit.core.error_catalogue.entry import NO_RUN_BEGINS, NOTHING_CHANGED, ErrorEntry

ENTRIES = (
    ErrorEntry(
        id="SETTINGS_INVALID",
        error="ConfigurationError",
        title="A setting or the environment is wrong",
        cause="A setting, an argument of the Python API or the environment does not have the required value.",
        impact=NOTHING_CHANGED,
        action="Set the setting that the message names to a value that the message allows, then repeat the command.",
    ),
    ErrorEntry(
        id="JOB_FILE_INVALID",
        error="ConfigurationError",
        title="The job file is invalid",
        cause="The job file or an override (`--set`) has a missing, unknown or invalid value, or cannot be read.",
        impact=NOTHING_CHANGED,
        action=(
            "Correct each setting that the message names, at the named line of the job file or in its `--set` option."
        ),
        command="check JOB.yaml",
    ),
    ErrorEntry(
        id="CHECK_FAILED",
        error="ConfigurationError",
        title="The check before a run found several problems",
        cause="The check before a run found wrong settings, unavailable systems or missing permissions.",
        impact=NO_RUN_BEGINS,
        action="Correct each problem. `distcommit check` lists each with its line in the job file and its remedy.",
        command="check JOB.yaml",
    ),
    ErrorEntry(
        id="ARGUMENT_INVALID",
        error="ConfigurationError",
        title="An argument is invalid",
        cause="An argument of a command or of the Python API is missing, unknown or not usable here.",
        impact=NOTHING_CHANGED,
        action=(
            "Correct the argument that the message names. `distcommit COMMAND --help` lists the arguments of a command."
        ),
    ),
    ErrorEntry(
        id="COMMAND_RENAMED",
        error="ConfigurationError",
        title="The command or option has another name",
        cause="The command line names a command or an option by its former name.",
        impact=NOTHING_CHANGED,
        action="Replace the former name by the name that the message gives.",
        command="--help",
    ),
    ErrorEntry(
        id="PACKAGE_MISSING",
        error="ConfigurationError",
        title="An optional package is not installed",
        cause="The job uses a feature whose package is not installed on this machine or on the executors.",
        impact=NO_RUN_BEGINS,
        action="Install the package that the message names with pip, on the driver and on all executors.",
    ),
    ErrorEntry(
        id="SECRET_FILE_UNREADABLE",
        error="ConfigurationError",
        title="The file of a secret cannot be read",
        cause="The job file names a file (`${file:PATH}`) that is missing, unreadable or not an absolute path.",
        impact=NO_RUN_BEGINS,
        action="Create the file where the job runs, or correct its path in the job file.",
    ),
    ErrorEntry(
        id="JOB_FOLDERS_INVALID",
        error="ConfigurationError",
        title="The folders of the job are invalid",
        cause=(
            "A folder of the job has an incomplete URL or a password in it, or overlaps with another folder; or staging"
            " and output are on different file systems."
        ),
        impact=NO_RUN_BEGINS,
        action="Correct paths.store, paths.staging and paths.output: three separate folders, staging and output on"
        " one file system.",
    ),
    ErrorEntry(
        id="JOB_FOLDERS_NOT_ACCESSIBLE",
        error="ConfigurationError",
        title="The folders of the job are not accessible",
        cause="A folder of the job cannot be created, read or written by this user.",
        impact=NO_RUN_BEGINS,
        action=(
            "Correct paths.store, paths.staging and paths.output, or give this user write permission and free space "
            "there."
        ),
    ),
    ErrorEntry(
        id="FILE_SYSTEM_UNSUPPORTED",
        error="ConfigurationError",
        title="The file system lacks a required capability",
        cause="Exactly-once delivery needs atomic renames and durable writes, which the file system does not have.",
        impact=NO_RUN_BEGINS,
        action=(
            "Set paths.store, paths.staging and paths.output to folders on a local disk, hdfs://, s3://, az:// or "
            "gs://. If the message expects commit.durability: none, you may set that instead; a power loss may then "
            "lose data. The page `File systems compared` lists what each file system allows."
        ),
    ),
    ErrorEntry(
        id="STORAGE_ADDRESS_INVALID",
        error="ConfigurationError",
        title="The storage address or its credentials are wrong",
        cause="The bucket, NameNode or endpoint does not exist, or rejects the credentials.",
        impact=NO_RUN_BEGINS,
        action=(
            "Correct the bucket, NameNode or endpoint in section paths, and set valid credentials on the driver and on"
            " all executors."
        ),
    ),
    ErrorEntry(
        id="PATH_OUTSIDE_ROOT",
        error="ConfigurationError",
        title="A path leads out of its folder",
        cause="A stored path or a symbolic link leads out of the folders of the job.",
        impact="Nothing is written through the path.",
        action=(
            "Remove the symbolic link that the message names. Without a link, the store or the job file was altered: "
            "run the job only after you have restored both."
        ),
    ),
    ErrorEntry(
        id="SETTING_FIXED",
        error="ConfigurationError",
        title="A fixed setting was changed",
        cause=(
            "A fixed setting differs from its recorded value, and the store has committed state that depends on the "
            "recorded value."
        ),
        impact=NO_RUN_BEGINS,
        action=(
            "Restore the recorded value that the message names as expected, or run the command that the message gives "
            "for the new value."
        ),
    ),
    ErrorEntry(
        id="BUCKET_COUNT_DIFFERS",
        error="ConfigurationError",
        title="The store has another number of buckets",
        cause="`commit.buckets` differs from the number of buckets of the store.",
        impact=NO_RUN_BEGINS,
        action=(
            "Set commit.buckets to the number that the message names as found, or remove the setting. To change the "
            "store instead, run the command with the number of commit.buckets."
        ),
        command="store rebucket JOB.yaml --buckets N",
    ),
    ErrorEntry(
        id="DATASET_NAME_INVALID",
        error="ConfigurationError",
        title="A dataset URN is invalid",
        cause="The source reports a dataset whose name is empty, exceeds 1,024 bytes or is not valid Unicode.",
        impact="The dataset is not read. Other datasets continue.",
        action="Rename the dataset at its source, or exclude the dataset in section source.",
    ),
    ErrorEntry(
        id="CUSTOM_CLASS_INVALID",
        error="ConfigurationError",
        title="A custom class or function cannot be used",
        cause="The class or function cannot be imported or used with its options, or the class has another base class.",
        impact=NO_RUN_BEGINS,
        action="Correct the class or function or its options, and install it on the driver and on all executors.",
    ),
    ErrorEntry(
        id="COMMIT_GROUP_INVALID",
        error="ConfigurationError",
        title="A commit group is invalid",
        cause="The sink assigns a dataset to an invalid commit group, or to another bucket than before.",
        impact=NO_RUN_BEGINS,
        action=(
            "Restore the former `commit_group()`. To group by another rule, also change the text of `grouped_by`, then "
            "run `distcommit store rebucket`."
        ),
    ),
    ErrorEntry(
        id="GOBBLIN_JOB_INVALID",
        error="ConfigurationError",
        title="The Gobblin job cannot be converted",
        cause="A property of the Gobblin job is missing, invalid or not supported.",
        impact=NOTHING_CHANGED,
        action="Correct the property that the message names, then convert again.",
        command="migrate convert-gobblin FILE.pull -o JOB.yaml",
    ),
    ErrorEntry(
        id="SERVED_JOBS_INVALID",
        error="ConfigurationError",
        title="A job of the service cannot be served",
        cause=(
            "A job file in the folder is invalid, has no schedule, has a sink of type console, or has a source that a "
            "streaming query feeds; or the folder has no job file."
        ),
        impact="The service does not start.",
        action="Correct each job file that the message names, or move it out of the service's folder.",
    ),
    ErrorEntry(
        id="JOB_NOT_SERVED",
        error="ConfigurationError",
        title="No service runs this job",
        cause="The job has no schedule, so that no service reads requests for it.",
        impact=NOTHING_CHANGED,
        action="Run the job directly, or add section schedule to its job file.",
        command="run JOB.yaml",
    ),
    ErrorEntry(
        id="JAVA_MISSING",
        error="ConfigurationError",
        title="Spark finds no suitable Java",
        cause="Java is not installed, or is older than this Spark requires.",
        impact=NO_RUN_BEGINS,
        action="Install the Java version that the message names, and set JAVA_HOME.",
    ),
    ErrorEntry(
        id="SPARK_SETTINGS_INVALID",
        error="ConfigurationError",
        title="Spark rejects its settings",
        cause="`spark.master`, `spark.remote` or an entry of `spark.conf` is wrong.",
        impact=NO_RUN_BEGINS,
        action="Correct spark.master, spark.remote or the entry of spark.conf that the message names.",
    ),
    ErrorEntry(
        id="EXECUTORS_DIFFER",
        error="ConfigurationError",
        title="Executors and driver have different environments",
        cause="The executors have no distcommit package, or resolve the names in the job file to other systems.",
        impact=NO_RUN_BEGINS,
        action=(
            "Install the same packages on the driver and all executors, and make host names in the job file resolve to"
            " the same addresses everywhere."
        ),
    ),
    ErrorEntry(
        id="STORE_NOT_VISIBLE",
        error="ConfigurationError",
        title="An executor does not see the store",
        cause="The path of the store leads to another folder on that machine than on the driver's.",
        impact="Other executors repeat the tasks of that machine. If none sees the store, the run ends.",
        action=(
            "Mount the folders of `paths` on each machine under the same path, or use URLs of a shared file system,"
            " such as HDFS or S3."
        ),
    ),
    ErrorEntry(
        id="MICRO_BATCH_INVALID",
        error="ConfigurationError",
        title="The micro-batch cannot be ingested",
        cause=(
            "`Job.on_batch` was not called by a streaming query, or was called over Spark Connect, or the batch has no "
            "dataset column with text in every row."
        ),
        impact="Nothing of the micro-batch is committed. The query stops and can be restarted from its checkpoint.",
        action=(
            "Call `Job.on_batch` only by foreachBatch, in a session without spark.remote. Set source.dataset_column to "
            "a column of the batch with text in every row."
        ),
    ),
    ErrorEntry(
        id="TARGET_SETUP_INVALID",
        error="ConfigurationError",
        title="The target's configuration cannot guarantee exactly-once",
        cause="The database server or the ledger topic is configured so that commits could be lost.",
        impact="Nothing is written to the target.",
        action=(
            "Change the server's or topic's configuration to the value that the message requires, or set another "
            "ledger in section sink."
        ),
    ),
    ErrorEntry(
        id="CREDENTIALS_REJECTED",
        error="ConfigurationError",
        title="The server rejects the user or the password",
        cause="The password is missing or wrong, or the user does not exist. With Kafka, the brokers may also not"
        " support the SASL mechanism. The server itself responds.",
        impact=NO_RUN_BEGINS,
        action="Correct the setting that the message names, or the user: in `url`, or for Kafka `sasl.username` in"
        " `client`.",
    ),
    ErrorEntry(
        id="KAFKA_SETTINGS_INVALID",
        error="ConfigurationError",
        title="The Kafka client rejects its settings",
        cause="`source.client` has an unknown or invalid entry, or one that the source controls.",
        impact=NO_RUN_BEGINS,
        action="Correct or remove the entry of source.client that the message names.",
    ),
)
