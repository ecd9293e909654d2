import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The stock clients at a cluster: TargetClient BOOTSTRAP TOPIC group PROTOCOL | transactions | admin.
 *
 * Prints what the clients saw, a line each. The topic has three partitions; admin makes its own.
 */
public final class TargetClient {
    private static final int RECORDS = 30, PARTITIONS = 3, LIMIT_MS = 60_000;
    private final String bootstrap, topic;

    private TargetClient(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        TargetClient client = new TargetClient(arguments[0], arguments[1]);
        switch (arguments[2]) {
            case "group" -> client.group(arguments[3]);
            case "transactions" -> client.transactions();
            case "admin" -> client.admin();
            default -> throw new IllegalArgumentException(arguments[2]);
        }
    }

    private static void show(String what, Object value) {
        System.out.println(what + ": " + value);
    }

    private Map<String, Object> settings(Object... more) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        for (int index = 0; index < more.length; index += 2) {
            all.put((String) more[index], more[index + 1]);
        }
        return all;
    }

    private KafkaProducer<String, String> producer(Object... more) {
        return new KafkaProducer<>(settings(more), new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(Object... more) {
        Map<String, Object> all = settings(more);
        all.put("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", false);
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    /** Two members share the partitions; the first one has read and committed all records before. */
    private void group(String protocol) throws Exception {
        try (KafkaProducer<String, String> producer = producer("compression.type", "lz4", "linger.ms", 5)) {
            for (int number = 0; number < RECORDS; number++) {
                producer.send(new ProducerRecord<>(topic, number % PARTITIONS, "k" + number, "v" + number));
            }
        }
        Object[] settings = {"group.id", topic + "-group", "group.protocol", protocol};
        try (KafkaConsumer<String, String> first = consumer(settings)) {
            first.subscribe(List.of(topic));
            show("read", read(first, RECORDS).size());
            first.commitSync();
            show("committed", new TreeMap<>(first.committed(partitions()).entrySet().stream()
                .collect(Collectors.toMap(each -> each.getKey().partition(), each -> each.getValue().offset()))));
            try (KafkaConsumer<String, String> second = consumer(settings)) {
                second.subscribe(List.of(topic));
                show("assigned", divided(first, second));
            }
        }
    }

    private Set<TopicPartition> partitions() {
        Set<TopicPartition> all = new HashSet<>();
        for (int partition = 0; partition < PARTITIONS; partition++) {
            all.add(new TopicPartition(topic, partition));
        }
        return all;
    }

    private static Set<String> read(KafkaConsumer<String, String> consumer, int count) {
        Set<String> values = new TreeSet<>();
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (values.size() < count && System.currentTimeMillis() < end) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                values.add(record.value());
            }
        }
        return values;
    }

    private static List<Integer> divided(KafkaConsumer<?, ?> first, KafkaConsumer<?, ?> second) {
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (System.currentTimeMillis() < end) {
            first.poll(Duration.ofMillis(50));
            second.poll(Duration.ofMillis(50));
            List<Integer> held = new ArrayList<>(List.of(first.assignment().size(), second.assignment().size()));
            Collections.sort(held);
            if (held.equals(List.of(1, 2))) {
                return held;
            }
        }
        return List.of();
    }

    /** Copies records and commits their offsets in transactions, of which the first is aborted. */
    private void transactions() {
        TopicPartition source = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> plain = producer()) {
            plain.send(new ProducerRecord<>(topic, 0, "k", "source"));
        }
        try (KafkaProducer<String, String> producer = producer("transactional.id", topic + "-id");
                KafkaConsumer<String, String> reader = consumer("group.id", topic + "-copies")) {
            producer.initTransactions();
            reader.subscribe(List.of(topic));
            show("source", read(reader, 1));
            for (boolean commit : new boolean[] {false, true}) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 1, "k", commit ? "committed" : "aborted"));
                producer.flush(); // an abort drops what was not sent yet
                producer.sendOffsetsToTransaction(
                    Map.of(source, new OffsetAndMetadata(commit ? 1 : 0)), reader.groupMetadata());
                if (commit) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
            show("offset", reader.committed(Set.of(source)).get(source).offset());
        }
        try (KafkaConsumer<String, String> committed = consumer("isolation.level", "read_committed");
                KafkaConsumer<String, String> all = consumer("isolation.level", "read_uncommitted")) {
            committed.assign(List.of(new TopicPartition(topic, 1)));
            all.assign(List.of(new TopicPartition(topic, 1)));
            show("read committed", read(committed, 1));
            show("read uncommitted", read(all, 2));
        }
    }

    private void admin() throws Exception {
        String name = topic + "-admin";
        TopicPartition first = new TopicPartition(name, 0);
        try (Admin admin = Admin.create(settings()); KafkaProducer<String, String> producer = producer()) {
            show("nodes", admin.describeCluster().nodes().get().size());
            admin.createTopics(List.of(new NewTopic(name, 1, (short) 3))).all().get();
            admin.createPartitions(Map.of(name, NewPartitions.increaseTo(2))).all().get();
            show("partitions", admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size());
            producer.send(new ProducerRecord<>(name, 0, "k", "v")).get();
            producer.send(new ProducerRecord<>(name, 0, "k", "v")).get();
            show("end", admin.listOffsets(Map.of(first, OffsetSpec.latest())).all().get().get(first).offset());
            admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(1))).all().get();
            show("start", admin.listOffsets(Map.of(first, OffsetSpec.earliest())).all().get().get(first).offset());
            ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(
                new ConfigEntry("max.message.bytes", "2000"), AlterConfigOp.OpType.SET)))).all().get();
            show("config", admin.describeConfigs(List.of(resource)).all().get().get(resource)
                .get("max.message.bytes").value());
            admin.alterConsumerGroupOffsets(name, Map.of(first, new OffsetAndMetadata(2))).all().get();
            show("committed", admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get()
                .get(first).offset());
            show("groups", admin.listConsumerGroups().all().get().stream().map(each -> each.groupId()).toList());
            admin.deleteConsumerGroups(List.of(name)).all().get();
            admin.deleteTopics(List.of(name)).all().get();
            show("topics", admin.listTopics().names().get().stream().filter(name::equals).toList());
        }
    }
}
