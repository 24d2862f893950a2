import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.ConnectException;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.generated.StormTopology;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.KafkaSpout;
import org.apache.storm.kafka.spout.KafkaSpoutConfig;
import org.apache.storm.redis.state.RedisKeyValueStateProvider;
import org.apache.storm.state.KeyValueState;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.topology.base.BaseStatefulBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;
import org.apache.storm.utils.TupleUtils;

/** Which words divide by three, which by eleven: the application of the peers, in Apache Storm. */
public final class Words {

    private static final int CORES = 2;
    private static final String FOR_THREE = "ThreeCandidates";
    private static final String FOR_ELEVEN = "ElevenCandidates";

    private Words() {}

    /** Runs until it is killed. */
    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int index = 0; index < arguments.length; index += 2) {
            options.put(arguments[index], arguments[index + 1]);
        }
        StormTopology topology =
                topology(
                        options.get("--brokers"),
                        options.get("--words"),
                        options.get("--totals"),
                        Integer.parseInt(options.get("--keys")));
        Config settings = settings();
        if (options.containsKey("--redis")) {
            int port = redis(options.get("--redis"), Path.of(options.get("--state")));
            settings.put(Config.TOPOLOGY_STATE_PROVIDER, RedisKeyValueStateProvider.class.getName());
            settings.put(
                    Config.TOPOLOGY_STATE_PROVIDER_CONFIG,
                    "{\"jedisPoolConfig\": {\"host\": \"127.0.0.1\", \"port\": %d}}".formatted(port));
        }
        new LocalCluster().submitTopology(options.get("--words"), settings, topology);
        Thread.currentThread().join();
    }

    /** The port of a Redis, which keeps Storm's state in a directory, and dies with this process. */
    private static int redis(String program, Path directory) throws IOException, InterruptedException {
        int port;
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        Process redis =
                new ProcessBuilder(
                                List.of(
                                        "setpriv", "--pdeathsig", "KILL", program,
                                        "--bind", "127.0.0.1", "--port", String.valueOf(port),
                                        "--dir", directory.toString(), "--save", "", "--appendonly", "yes"))
                        .redirectErrorStream(true)
                        .redirectOutput(directory.resolve("redis.log").toFile())
                        .start();
        while (true) {
            try {
                new Socket("127.0.0.1", port).close();
                return port;
            } catch (ConnectException notYet) {
                if (!redis.isAlive()) {
                    throw new IllegalStateException("Redis does not start: see redis.log in " + directory, notYet);
                }
                Thread.sleep(50);
            }
        }
    }

    private static StormTopology topology(String brokers, String words, String totals, int keys) {
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("RawWords", new KafkaSpout<>(rawWords(brokers, words)), CORES);
        // One thread for each bolt is enough to keep two cores busy: more of them cost more than they do.
        builder.setBolt("WordReceiver", new WordReceiver(keys), 1).localOrShuffleGrouping("RawWords");
        builder.setBolt("ThreeReceiver", new ThreeReceiver(), 1)
                .setNumTasks(keys)
                .fieldsGrouping("WordReceiver", FOR_THREE, new Fields("key"));
        builder.setBolt("ElevenReceiver", new ElevenReceiver(), 1)
                .setNumTasks(keys)
                .fieldsGrouping("WordReceiver", FOR_ELEVEN, new Fields("key"));
        builder.setBolt("AggregationReceiver", new AggregationReceiver(brokers, totals), 1)
                .fieldsGrouping("ThreeReceiver", new Fields("by"))
                .fieldsGrouping("ElevenReceiver", new Fields("by"))
                // The least there is; the last total comes out with it.
                .addConfiguration(Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS, 1);
        return builder.createTopology();
    }

    private static KafkaSpoutConfig<String, String> rawWords(String brokers, String words) {
        return new KafkaSpoutConfig.Builder<String, String>(brokers, words)
                .setProp(ConsumerConfig.GROUP_ID_CONFIG, "storm-" + words)
                .setProp(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class)
                .setProp(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class)
                .setProp(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, 2_000)
                .setProcessingGuarantee(KafkaSpoutConfig.ProcessingGuarantee.AT_LEAST_ONCE)
                .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.UNCOMMITTED_EARLIEST)
                .setOffsetCommitPeriodMs(200)
                .setRecordTranslator(record -> new Values(record.value()), new Fields("json"))
                .build();
    }

    private static Config settings() {
        Config settings = new Config();
        settings.setNumWorkers(1);
        settings.setNumAckers(1);
        settings.setMaxSpoutPending(5_000);
        settings.put(Config.TOPOLOGY_PRODUCER_BATCH_SIZE, 100);
        // Holds all that the pending words become: runs with shorter queues stalled.
        settings.put(Config.TOPOLOGY_EXECUTOR_RECEIVE_BUFFER_SIZE, 131_072);
        settings.put(Config.TOPOLOGY_BATCH_FLUSH_INTERVAL_MILLIS, 5);
        settings.put(Config.TOPOLOGY_DISABLE_LOADAWARE_MESSAGING, true);
        // The shortest there is: what has been counted is pending until then.
        settings.put(Config.TOPOLOGY_STATE_CHECKPOINT_INTERVAL, 100);
        return settings;
    }

    /** Sends each number to both receivers, once for each key. */
    private static final class WordReceiver extends BaseRichBolt {

        private static final long serialVersionUID = 1;

        private final int keys;
        private transient ObjectReader reader;
        private transient OutputCollector collector;

        private record RawWord(String text) {}

        WordReceiver(int keys) {
            this.keys = keys;
        }

        @Override
        public void prepare(Map<String, Object> settings, TopologyContext context, OutputCollector collector) {
            this.collector = collector;
            reader = new ObjectMapper().readerFor(RawWord.class);
        }

        @Override
        public void execute(Tuple tuple) {
            String text = text(tuple.getString(0));
            if (isNumber(text)) {
                for (int key = 0; key < keys; key++) {
                    collector.emit(FOR_ELEVEN, tuple, new Values(text, key));
                    collector.emit(FOR_THREE, tuple, new Values(text, key));
                }
            }
            collector.ack(tuple);
        }

        private String text(String json) {
            try {
                return reader.<RawWord>readValue(json).text();
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
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

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declareStream(FOR_ELEVEN, new Fields("text", "key"));
            declarer.declareStream(FOR_THREE, new Fields("text", "key"));
        }
    }

    /** Passes on what its check finds. */
    private abstract static class Receiver extends BaseRichBolt {

        private static final long serialVersionUID = 1;

        private final String by;
        private transient OutputCollector collector;

        Receiver(String by) {
            this.by = by;
        }

        abstract boolean divides(String text);

        @Override
        public void prepare(Map<String, Object> settings, TopologyContext context, OutputCollector collector) {
            this.collector = collector;
        }

        @Override
        public void execute(Tuple tuple) {
            if (divides(tuple.getString(0))) {
                collector.emit(tuple, new Values(by, tuple.getInteger(1)));
            }
            collector.ack(tuple);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("by", "key"));
        }
    }

    private static final class ThreeReceiver extends Receiver {

        private static final long serialVersionUID = 1;

        ThreeReceiver() {
            super("Three");
        }

        @Override
        boolean divides(String text) {
            int sum = 0;
            for (int index = 0; index < text.length(); index++) {
                sum += text.charAt(index) - '0';
            }
            return sum % 3 == 0;
        }
    }

    private static final class ElevenReceiver extends Receiver {

        private static final long serialVersionUID = 1;

        ElevenReceiver() {
            super("Eleven");
        }

        @Override
        boolean divides(String text) {
            int sum = 0;
            for (int index = 0; index < text.length(); index++) {
                int digit = text.charAt(index) - '0';
                sum += index % 2 == 0 ? digit : -digit;
            }
            return sum % 11 == 0;
        }
    }

    /** Counts, in Storm's state; publishes what has changed each 50 ms. */
    private static final class AggregationReceiver extends BaseStatefulBolt<KeyValueState<String, Long>> {

        private static final long serialVersionUID = 1;
        private static final long PAUSE = 50_000_000;

        private final String brokers;
        private final String totals;
        private final Map<String, Long> changed = new HashMap<>();
        private transient ObjectWriter writer;
        private transient KafkaProducer<String, byte[]> producer;
        private transient KeyValueState<String, Long> counts;
        private transient OutputCollector collector;
        private transient long published;
        private transient String part;

        private record Total(String by, String part, long count) {}

        AggregationReceiver(String brokers, String totals) {
            this.brokers = brokers;
            this.totals = totals;
        }

        @Override
        public void prepare(Map<String, Object> settings, TopologyContext context, OutputCollector collector) {
            this.collector = collector;
            part = String.valueOf(context.getThisTaskIndex());
            writer = new ObjectMapper().writerFor(Total.class);
            producer =
                    new KafkaProducer<>(
                            Map.of(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, brokers),
                            new StringSerializer(),
                            new ByteArraySerializer());
        }

        @Override
        public void initState(KeyValueState<String, Long> state) {
            counts = state;
        }

        @Override
        public void execute(Tuple tuple) {
            if (!TupleUtils.isTick(tuple)) {
                String by = tuple.getString(0);
                long count = counts.get(by, 0L) + 1;
                counts.put(by, count);
                changed.put(by, count);
            }
            collector.ack(tuple);
            if (System.nanoTime() - published >= PAUSE) {
                changed.forEach((by, count) -> producer.send(new ProducerRecord<>(totals, by, json(by, count))));
                changed.clear();
                published = System.nanoTime();
            }
        }

        private byte[] json(String by, long count) {
            try {
                return writer.writeValueAsBytes(new Total(by, part, count));
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
    }
}
