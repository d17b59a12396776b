import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.regex.Pattern;
import org.apache.avro.reflect.Nullable;
import org.apache.avro.reflect.ReflectData;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.fs.Path;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.formats.parquet.ParquetWriterFactory;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.BucketAssigner;
import org.apache.flink.streaming.api.functions.sink.filesystem.OutputFileConfig;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.SimpleVersionedStringSerializer;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.parquet.avro.AvroParquetWriter;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;

/** Flink's FileSink, exactly once, a folder for each topic: BROKERS PATTERN FOLDER INTERVAL_S [CHECKPOINT]. */
public final class TopicsToFiles {
    /** A record, in the columns that the other systems write. */
    public static class Row {
        public String topic = "";
        public int partition;
        public long offset;
        public long timestamp;
        @Nullable public byte[] key;
        public byte[] value = new byte[0];
    }

    private static final class FromKafka implements KafkaRecordDeserializationSchema<Row> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Row> out) {
            Row row = new Row();
            row.topic = record.topic();
            row.partition = record.partition();
            row.offset = record.offset();
            row.timestamp = record.timestamp();
            row.key = record.key();
            row.value = record.value();
            out.collect(row);
        }

        @Override
        public TypeInformation<Row> getProducedType() {
            return TypeInformation.of(Row.class);
        }
    }

    private static final class ByTopic implements BucketAssigner<Row, String> {
        @Override
        public String getBucketId(Row row, Context context) {
            return row.topic;
        }

        @Override
        public SimpleVersionedSerializer<String> getSerializer() {
            return SimpleVersionedStringSerializer.INSTANCE;
        }
    }

    public static void main(String[] args) throws Exception {
        String brokers = args[0], pattern = args[1], folder = args[2];
        Configuration conf = new Configuration();
        conf.setString("execution.checkpointing.interval", args[3] + " s");
        conf.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        conf.setString("execution.checkpointing.dir", "file://" + folder + "/checkpoints");
        conf.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        conf.setString("execution.checkpointing.num-retained", "3");
        conf.setString("pipeline.object-reuse", "true");
        conf.setString("restart-strategy.type", "fixed-delay");
        conf.setString("restart-strategy.fixed-delay.attempts", "100");
        conf.setString("restart-strategy.fixed-delay.delay", "1 s");
        if (args.length > 4) {
            conf.setString("execution.state-recovery.path", args[4]);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, conf);
        Files.createDirectories(Paths.get(folder, "output"));

        KafkaSource<Row> source = KafkaSource.<Row>builder()
            .setBootstrapServers(brokers)
            .setTopicPattern(Pattern.compile(pattern))
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setDeserializer(new FromKafka())
            .build();
        ParquetWriterFactory<Row> parquet = new ParquetWriterFactory<>(out ->
            AvroParquetWriter.<Row>builder(out)
                .withSchema(ReflectData.get().getSchema(Row.class))
                .withDataModel(ReflectData.get())
                .withCompressionCodec(CompressionCodecName.ZSTD)
                .build());
        FileSink<Row> sink = FileSink.forBulkFormat(new Path("file://" + folder + "/output"), parquet)
            .withBucketAssigner(new ByTopic())
            .withOutputFileConfig(OutputFileConfig.builder().withPartSuffix(".parquet").build())
            .build();
        env.fromSource(source, WatermarkStrategy.noWatermarks(), "topics").uid("topics").sinkTo(sink).uid("files");
        env.execute("topics to files");
    }

    private TopicsToFiles() {}
}
