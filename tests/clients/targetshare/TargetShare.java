import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Stock share consumers at a target whose clock it advances: TargetShare BOOTSTRAP CONTROL TOPIC.
 *
 * Prints what the members saw, a line each. The group "TOPIC-share" starts at the earliest offset.
 */
public final class TargetShare {
    private static final int LIMIT_MS = 60_000;
    private final String bootstrap, control, topic, group;

    private TargetShare(String[] arguments) {
        bootstrap = arguments[0];
        control = arguments[1];
        topic = arguments[2];
        group = topic + "-share";
    }

    public static void main(String[] arguments) throws Exception {
        TargetShare run = new TargetShare(arguments);
        run.produce("accepted", "released", "rejected", "renewed");
        try (KafkaShareConsumer<String, String> first = run.member();
                KafkaShareConsumer<String, String> second = run.member()) {
            run.settle(first);
            run.expire(first, second);
        }
        run.describe();
    }

    private static void show(String what, Object value) {
        System.out.println(what + ": " + value);
    }

    private KafkaShareConsumer<String, String> member() {
        KafkaShareConsumer<String, String> member = new KafkaShareConsumer<>(
            Map.of("bootstrap.servers", bootstrap, "group.id", group, "share.acknowledgement.mode", "explicit"),
            new StringDeserializer(), new StringDeserializer());
        member.subscribe(List.of(topic));
        return member;
    }

    private void produce(String... values) {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer())) {
            for (String value : values) {
                producer.send(new ProducerRecord<>(topic, 0, "k", value));
            }
        }
    }

    /** Poll until this many records are delivered together. */
    private static Map<String, ConsumerRecord<String, String>> polled(KafkaShareConsumer<String, String> member) {
        Map<String, ConsumerRecord<String, String>> records = new TreeMap<>();
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (records.isEmpty() && System.currentTimeMillis() < end) {
            member.poll(Duration.ofMillis(200)).forEach(record -> records.put(record.value(), record));
        }
        return records;
    }

    private static String counted(Map<String, ConsumerRecord<String, String>> records) {
        StringBuilder text = new StringBuilder();
        for (Iterator<ConsumerRecord<String, String>> each = records.values().iterator(); each.hasNext();) {
            ConsumerRecord<String, String> record = each.next();
            text.append(record.value()).append(' ').append(record.deliveryCount().get()).append(each.hasNext() ? ", " : "");
        }
        return text.toString();
    }

    /** One record of each acknowledgement; the released one comes again. */
    private void settle(KafkaShareConsumer<String, String> member) {
        Map<String, ConsumerRecord<String, String>> records = polled(member);
        show("delivered", counted(records));
        member.acknowledge(records.get("accepted"), AcknowledgeType.ACCEPT);
        member.acknowledge(records.get("released"), AcknowledgeType.RELEASE);
        member.acknowledge(records.get("rejected"), AcknowledgeType.REJECT);
        member.acknowledge(records.get("renewed"), AcknowledgeType.RENEW);
        show("errors", errors(member));
    }

    private static List<String> errors(KafkaShareConsumer<String, String> member) {
        return member.commitSync().values().stream()
            .flatMap(error -> error.stream()).map(error -> error.getClass().getSimpleName()).toList();
    }

    /** The renewed record is held by the first member until its lock expires; the second one receives both others. */
    private void expire(KafkaShareConsumer<String, String> first, KafkaShareConsumer<String, String> second)
            throws Exception {
        Map<String, ConsumerRecord<String, String>> released = polled(second);
        show("second member", counted(released));
        second.acknowledge(released.get("released"), AcknowledgeType.ACCEPT);
        show("errors", errors(second));
        advance(30_000);
        Map<String, ConsumerRecord<String, String>> expired = polled(second);
        show("after the lock", counted(expired));
        expired.values().forEach(record -> second.acknowledge(record, AcknowledgeType.ACCEPT));
        show("errors", errors(second));
    }

    private void advance(int ms) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(control + "/clock/advance?ms=" + ms))
            .POST(HttpRequest.BodyPublishers.noBody()).build();
        HttpResponse<String> response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != 200) {
            throw new IllegalStateException(response.body());
        }
    }

    private void describe() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            show("state", admin.describeShareGroups(List.of(group)).all().get().get(group).groupState());
            show("start", admin.listShareGroupOffsets(Map.of(group,
                    new org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec().topicPartitions(
                        List.of(new TopicPartition(topic, 0)))))
                .partitionsToOffsetInfo(group).get().get(new TopicPartition(topic, 0)).startOffset());
            admin.deleteShareGroups(List.of(group)).all().get();
            show("groups", admin.listGroups().all().get().stream().map(each -> each.groupId()).toList());
        }
    }
}
