import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.SplittableRandom;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Measures Kafka with its own clients. One line a command on the standard input, as {@code verb name=value ...}; one line of
 * JSON an answer. The process stays, so that its code is compiled when it counts.
 */
public final class KafkaBench {
    private static String servers;
    private static long seed = 1;

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            Map<String, String> given = new HashMap<>();
            for (int word = 1; word < words.length; word++) {
                String[] pair = words[word].split("=", 2);
                given.put(pair[0], pair[1]);
            }
            String answer;
            try {
                answer = switch (words[0]) {
                    case "create" -> create(given);
                    case "latency" -> latency(given);
                    case "clients" -> clients(given);
                    case "pipelined" -> pipelined(given);
                    case "consume" -> consume(given);
                    default -> throw new IllegalArgumentException("no such verb: " + words[0]);
                };
            } catch (Exception error) {
                answer = "{\"error\": \"" + String.valueOf(error).replace("\\", "/").replace('"', '\'').replace('\n', ' ') + "\"}";
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private static int number(Map<String, String> given, String name) {
        return Integer.parseInt(given.get(name));
    }

    private static KafkaProducer<byte[], byte[]> producer(Map<String, String> more) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("acks", "all");
        properties.put("linger.ms", "0");
        properties.putAll(more);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Random bytes that no other call of this process has got. */
    private static byte[][] payloads(int count, int bytes) {
        SplittableRandom random = new SplittableRandom(seed++);
        byte[][] payloads = new byte[count][bytes];
        for (byte[] payload : payloads) {
            random.nextBytes(payload);
        }
        return payloads;
    }

    /** Creates a topic, and waits until each partition has acknowledged a record. */
    private static String create(Map<String, String> given) throws Exception {
        String topic = given.get("topic");
        int partitions = number(given, "partitions");
        Map<String, String> configuration = new HashMap<>();
        if (given.get("fsync").equals("1")) {
            configuration.put("flush.messages", "1");
        }
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        try (Admin admin = Admin.create(properties)) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(configuration))).all().get(30, TimeUnit.SECONDS);
        }
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            for (int partition = 0; partition < partitions; partition++) {
                producer.send(new ProducerRecord<>(topic, partition, null, new byte[1])).get(30, TimeUnit.SECONDS);
            }
        }
        return "{\"created\": \"" + topic + "\"}";
    }

    /** One record at a time, each acknowledged before the next: nanoseconds of each. */
    private static String latency(Map<String, String> given) throws Exception {
        int count = number(given, "count");
        int warm = count / 4;
        byte[][] payloads = payloads(count + warm, number(given, "bytes"));
        long[] nanoseconds = new long[count];
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            for (int record = 0; record < payloads.length; record++) {
                long begin = System.nanoTime();
                producer.send(new ProducerRecord<>(given.get("topic"), 0, null, payloads[record])).get();
                if (record >= warm) {
                    nanoseconds[record - warm] = System.nanoTime() - begin;
                }
            }
        }
        Arrays.sort(nanoseconds);
        return "{\"p50_us\": " + nanoseconds[count / 2] / 1e3 + ", \"p99_us\": " + nanoseconds[count * 99 / 100] / 1e3 + "}";
    }

    /** Threads that each wait for one record after the other, over some producers: records a second. */
    private static String clients(Map<String, String> given) throws Exception {
        int threads = number(given, "threads");
        int producers = number(given, "producers");
        int partitions = number(given, "partitions");
        int each = number(given, "count") / threads;
        int warm = Math.max(1, each / 10);
        String topic = given.get("topic");
        byte[][] payloads = payloads(threads * (each + warm), number(given, "bytes"));
        List<KafkaProducer<byte[], byte[]>> shared = new ArrayList<>();
        for (int index = 0; index < producers; index++) {
            shared.add(producer(Map.of()));
        }
        CountDownLatch warmed = new CountDownLatch(threads);
        CountDownLatch go = new CountDownLatch(1);
        AtomicReference<Exception> failed = new AtomicReference<>();
        List<Thread> running = new ArrayList<>();
        for (int index = 0; index < threads; index++) {
            int client = index;
            Thread thread = new Thread(() -> {
                KafkaProducer<byte[], byte[]> producer = shared.get(client % producers);
                int from = client * (each + warm);
                try {
                    for (int record = 0; record < each + warm; record++) {
                        if (record == warm) {
                            warmed.countDown();
                            go.await();
                        }
                        producer.send(new ProducerRecord<>(topic, client % partitions, null, payloads[from + record])).get();
                    }
                } catch (Exception error) {
                    failed.set(error);
                    warmed.countDown();
                }
            });
            thread.start();
            running.add(thread);
        }
        warmed.await();
        long begin = System.nanoTime();
        go.countDown();
        for (Thread thread : running) {
            thread.join();
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        for (KafkaProducer<byte[], byte[]> producer : shared) {
            producer.close();
        }
        if (failed.get() != null) {
            throw failed.get();
        }
        return "{\"rows_per_second\": " + (long) each * threads / seconds + ", \"seconds\": " + seconds + "}";
    }

    /** One producer that waits for nothing until the end: records a second, all acknowledged. */
    private static String pipelined(Map<String, String> given) throws Exception {
        int count = number(given, "count");
        int warm = count / 5;
        String topic = given.get("topic");
        byte[][] payloads = payloads(count + warm, number(given, "bytes"));
        AtomicReference<Exception> failed = new AtomicReference<>();
        double seconds;
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of(
                "linger.ms", given.get("linger"), "batch.size", given.get("batch"), "buffer.memory", String.valueOf(128 << 20)))) {
            long begin = 0;
            for (int record = 0; record < payloads.length; record++) {
                if (record == warm) {
                    producer.flush();
                    begin = System.nanoTime();
                }
                producer.send(new ProducerRecord<>(topic, payloads[record]), (where, error) -> {
                    if (error != null) {
                        failed.set(error);
                    }
                });
            }
            producer.flush();
            seconds = (System.nanoTime() - begin) / 1e9;
        }
        if (failed.get() != null) {
            throw failed.get();
        }
        return "{\"rows_per_second\": " + count / seconds + ", \"seconds\": " + seconds + "}";
    }

    /** One consumer that reads every record of a topic once: records a second. */
    private static String consume(Map<String, String> given) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("max.poll.records", "100000");
        properties.put("fetch.max.bytes", String.valueOf(64 << 20));
        properties.put("max.partition.fetch.bytes", String.valueOf(16 << 20));
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = new ArrayList<>();
            for (int partition = 0; partition < number(given, "partitions"); partition++) {
                all.add(new TopicPartition(given.get("topic"), partition));
            }
            consumer.assign(all);
            long wanted = 0;
            for (long end : consumer.endOffsets(all).values()) {
                wanted += end;
            }
            long rows = 0;
            long bytes = 0;
            consumer.seekToBeginning(all);
            long begin = System.nanoTime();
            while (rows < wanted) {
                for (var record : consumer.poll(Duration.ofSeconds(5))) {
                    rows += 1;
                    bytes += record.value().length;
                }
            }
            double seconds = (System.nanoTime() - begin) / 1e9;
            return "{\"rows_per_second\": " + rows / seconds + ", \"rows\": " + rows + ", \"bytes\": " + bytes + "}";
        }
    }
}
