import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.function.Predicate;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

/** Which words divide by three, which by eleven: the application of the peers, in Kafka Streams. */
public final class Words {

    private static final int CORES = 2;
    private static final ObjectReader RAW_WORD = new ObjectMapper().readerFor(RawWord.class);
    private static final ObjectWriter TOTAL = new ObjectMapper().writerFor(Total.class);

    private record RawWord(String text) {}

    private record Total(String by, String part, long count) {}

    private Words() {}

    /** Runs until it is killed, or a thread of the engine fails. */
    public static void main(String[] arguments) throws InterruptedException {
        Map<String, String> options = new HashMap<>();
        for (int index = 0; index < arguments.length; index += 2) {
            options.put(arguments[index], arguments[index + 1]);
        }
        Topology topology =
                topology(options.get("--words"), options.get("--totals"), Integer.parseInt(options.get("--keys")));
        KafkaStreams streams =
                new KafkaStreams(
                        topology, settings(options.get("--brokers"), options.get("--words"), options.get("--state")));
        CountDownLatch failed = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(
                failure -> {
                    failure.printStackTrace();
                    failed.countDown();
                    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
        streams.start();
        failed.await();
        System.exit(1);
    }

    private static Topology topology(String words, String totals, int keys) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<byte[], String> numbers =
                builder.stream(words, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                        .mapValues(Words::text)
                        .filter((key, text) -> isNumber(text));
        divisible(numbers, "Three", keys, Words::dividesByThree)
                .merge(divisible(numbers, "Eleven", keys, Words::dividesByEleven))
                .groupByKey(Grouped.with("divisible", Serdes.String(), Serdes.Integer()))
                .count(Materialized.with(Serdes.String(), Serdes.Long()))
                .toStream()
                .mapValues((by, count) -> json(new Total(by, "0", count)))
                .to(totals, Produced.with(Serdes.String(), Serdes.ByteArray()));
        return builder.build();
    }

    /** One receiver: what passes its check, by the receiver's name; the value is the key of the instance. */
    private static KStream<String, Integer> divisible(
            KStream<byte[], String> numbers, String by, int keys, Predicate<String> divides) {
        // Keys are few: by the partitioner that hashes, one partition would get most of them.
        StreamPartitioner<Integer, String> inTurn =
                (topic, key, text, partitions) -> Optional.of(Set.of(key % partitions));
        return numbers.flatMap((none, text) -> copies(text, keys))
                .repartition(
                        Repartitioned.<Integer, String>as(by + "Candidates")
                                .withKeySerde(Serdes.Integer())
                                .withValueSerde(Serdes.String())
                                .withNumberOfPartitions(CORES)
                                .withStreamPartitioner(inTurn))
                .filter((key, text) -> divides.test(text), Named.as(by + "Receiver"))
                .map((key, text) -> KeyValue.pair(by, key));
    }

    private static List<KeyValue<Integer, String>> copies(String text, int keys) {
        List<KeyValue<Integer, String>> copies = new ArrayList<>(keys);
        for (int key = 0; key < keys; key++) {
            copies.add(KeyValue.pair(key, text));
        }
        return copies;
    }

    private static boolean isNumber(String text) {
        for (int index = 0; index < text.length(); index++) {
            char character = text.charAt(index);
            if (character < '0' || character > '9') {
                return false;
            }
        }
        return !text.isEmpty();
    }

    private static boolean dividesByThree(String text) {
        int sum = 0;
        for (int index = 0; index < text.length(); index++) {
            sum += text.charAt(index) - '0';
        }
        return sum % 3 == 0;
    }

    private static boolean dividesByEleven(String text) {
        int sum = 0;
        for (int index = 0; index < text.length(); index++) {
            int digit = text.charAt(index) - '0';
            sum += index % 2 == 0 ? digit : -digit;
        }
        return sum % 11 == 0;
    }

    private static String text(byte[] message) {
        try {
            return RAW_WORD.<RawWord>readValue(message).text();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    private static byte[] json(Total total) {
        try {
            return TOTAL.writeValueAsBytes(total);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    private static Properties settings(String brokers, String words, String state) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "kafka-streams-" + words);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, brokers);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, state);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, CORES);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        // Two counters need no RocksDB: after a crash they are read from the changelog in any case.
        settings.put(
                StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG,
                BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        // Nothing is joined, so no order between the two topics of candidates is worth a wait.
        settings.put(StreamsConfig.MAX_TASK_IDLE_MS_CONFIG, StreamsConfig.MAX_TASK_IDLE_MS_DISABLED);
        // One who is started again takes the place of the one killed, with no wait for a session to end.
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG), "words");
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 10_000);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), 10_000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 5_000);
        settings.put(StreamsConfig.BUFFERED_RECORDS_PER_PARTITION_CONFIG, 5_000);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 256 * 1024);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), "lz4");
        return settings;
    }
}
