import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group that releases some records and sometimes works longer than the lock:
 * KeyedMember BOOTSTRAP GROUP TOPIC SEED RELEASED HANGING HANG_MS POLL_RECORDS [REJECTED RENEWED].
 *
 * <p>RELEASED, REJECTED and RENEWED are shares of the records, HANGING a share of the polls. It prints the lines that
 * tests/support/keyed_ledger.py reads, which has none for rejected and renewed records. Times are those of
 * System.nanoTime.
 */
public class KeyedMember {
    private static final Duration POLL = Duration.ofMillis(500);
    private static final PrintStream OUT = new PrintStream(
        new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, StandardCharsets.UTF_8);

    private final KafkaShareConsumer<String, String> consumer;
    private final Random dice;
    private final double released;
    private final double rejected;
    private final double renewed;
    private final double hanging;
    private final long hangMs;

    KeyedMember(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("max.poll.records", arguments[7]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("share.acquire.mode", "record_limit");
        dice = new Random(Long.parseLong(arguments[3]));
        released = Double.parseDouble(arguments[4]);
        hanging = Double.parseDouble(arguments[5]);
        hangMs = Long.parseLong(arguments[6]);
        rejected = arguments.length > 8 ? Double.parseDouble(arguments[8]) : 0;
        renewed = arguments.length > 9 ? Double.parseDouble(arguments[9]) : 0;
        consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.setAcknowledgementCommitCallback(this::print);
        consumer.subscribe(List.of(arguments[2]));
    }

    public static void main(String[] arguments) throws InterruptedException {
        KeyedMember member = new KeyedMember(arguments);
        for (int round = 0; true; round++) {
            try {
                member.work(round);
            } catch (RuntimeException error) {
                OUT.printf("E %s%n", error.toString().replaceAll("\\s+", " "));
            }
            OUT.flush();
        }
    }

    private void work(int round) throws InterruptedException {
        ConsumerRecords<String, String> records = consumer.poll(POLL);
        long now = System.nanoTime();
        for (ConsumerRecord<String, String> record : records) {
            int deliveries = record.deliveryCount().map(Short::intValue).orElse(0);
            OUT.printf("D %d %d %d %d%n", record.partition(), record.offset(), now, deliveries);
        }
        OUT.flush();
        if (records.isEmpty()) {
            return;
        }
        if (dice.nextDouble() < hanging) {
            OUT.println("H");
            Thread.sleep(hangMs);
        }
        acknowledge(records);
        if (round % 2 == 0) {
            consumer.commitSync();
        } else {
            consumer.commitAsync();
        }
    }

    /** The lines are written before a request is sent, so that they outlive a kill. */
    private void acknowledge(ConsumerRecords<String, String> records) {
        for (ConsumerRecord<String, String> record : records) {
            AcknowledgeType type = type(dice.nextDouble());
            if (type == AcknowledgeType.ACCEPT || type == AcknowledgeType.RELEASE) {
                OUT.printf("%s %d %d %d%n",
                    type == AcknowledgeType.RELEASE ? "R" : "A", record.partition(), record.offset(), System.nanoTime());
            }
            consumer.acknowledge(record, type);
        }
        OUT.flush();
    }

    private AcknowledgeType type(double chance) {
        if (chance < released) {
            return AcknowledgeType.RELEASE;
        }
        if (chance < released + rejected) {
            return AcknowledgeType.REJECT;
        }
        return chance < released + rejected + renewed ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT;
    }

    private void print(Map<TopicIdPartition, Set<Long>> acknowledged, Exception error) {
        long now = System.nanoTime();
        String word = error == null ? "-" : error.getClass().getSimpleName();
        acknowledged.forEach((partition, offsets) -> offsets.forEach(
            offset -> OUT.printf("S %d %d %d %s%n", partition.partition(), offset, now, word)));
        OUT.flush();
    }
}
