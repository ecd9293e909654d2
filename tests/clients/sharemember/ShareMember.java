import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.io.Reader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group in explicit mode that accepts every record: ShareMember BOOTSTRAP GROUP TOPIC [FILE].
 *
 * <p>The file holds more settings of the client, as Java properties.
 *
 * <p>It tells on its output, one line each, times by System.nanoTime (CLOCK_MONOTONIC on Linux, the same for all):
 *
 * <pre>
 * D partition offset deliveries id fetchedAfter time    a record of that value (id) came to the application
 * S partition time offset...                            these acknowledgements were confirmed
 * F partition time error offset...                      these were not: the error's class
 * E time error                                          a call of the consumer failed
 * </pre>
 *
 * <p>fetchedAfter: the client's buffer was empty then, so that this record was no earlier in it.
 *
 * <p>Acknowledgements go in turn with commitSync, with commitAsync, and with the next fetch. SIGTERM closes it.
 */
public class ShareMember {
    private static final Duration POLL = Duration.ofMillis(500);
    private static final PrintStream OUT = new PrintStream(
        new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false, StandardCharsets.UTF_8);
    private static volatile boolean ended = false;

    private final KafkaShareConsumer<String, String> consumer;
    private final Object buffer;
    private final Method isEmpty;
    private final Method nextInLine;
    private long emptyAt = System.nanoTime();

    ShareMember(Properties settings) throws ReflectiveOperationException {
        consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        buffer = field(field(consumer, "delegate"), "fetchBuffer");
        isEmpty = method(buffer, "isEmpty");
        nextInLine = method(buffer, "nextInLineFetch");
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        if (arguments.length > 3) {
            try (Reader more = Files.newBufferedReader(Path.of(arguments[3]))) {
                settings.load(more);
            }
        }
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("share.acknowledgement.mode", "explicit");
        ShareMember member = new ShareMember(settings);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> end(member, main)));
        member.run(arguments[2]);
    }

    private static void end(ShareMember member, Thread main) {
        ended = true;
        member.consumer.wakeup();
        try {
            main.join(10_000);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void run(String topic) throws ReflectiveOperationException {
        consumer.setAcknowledgementCommitCallback(this::tell);
        consumer.subscribe(List.of(topic));
        for (int round = 0; !ended; round++) {
            try {
                take(round);
            } catch (WakeupException wakeup) {
                continue;
            } catch (RuntimeException error) {
                OUT.printf("E %d %s%n", System.nanoTime(), error.toString().replaceAll("\\s+", " "));
            }
            OUT.flush();
        }
        consumer.close(Duration.ofSeconds(5));
        OUT.flush();
    }

    private void take(int round) throws ReflectiveOperationException {
        if (bufferIsEmpty()) {
            emptyAt = System.nanoTime();
        }
        ConsumerRecords<String, String> records = consumer.poll(POLL);
        long now = System.nanoTime();
        for (ConsumerRecord<String, String> record : records) {
            int deliveries = record.deliveryCount().map(Short::intValue).orElse(0);
            OUT.printf("D %d %d %d %s %d %d%n",
                record.partition(), record.offset(), deliveries, record.value(), emptyAt, now);
            consumer.acknowledge(record, AcknowledgeType.ACCEPT);
        }
        OUT.flush();
        if (!records.isEmpty() && round % 3 == 0) {
            consumer.commitSync();
        } else if (!records.isEmpty() && round % 3 == 1) {
            consumer.commitAsync();
        }
    }

    private boolean bufferIsEmpty() throws ReflectiveOperationException {
        Object next = nextInLine.invoke(buffer);
        return (boolean) isEmpty.invoke(buffer) && (next == null || (boolean) method(next, "isConsumed").invoke(next));
    }

    private void tell(Map<TopicIdPartition, Set<Long>> acknowledged, Exception error) {
        long now = System.nanoTime();
        acknowledged.forEach((partition, offsets) -> {
            OUT.print(error == null ? "S" : "F");
            OUT.print(" " + partition.partition() + " " + now);
            if (error != null) {
                OUT.print(" " + error.getClass().getSimpleName());
            }
            offsets.forEach(offset -> OUT.print(" " + offset));
            OUT.println();
        });
    }

    private static Object field(Object of, String name) throws ReflectiveOperationException {
        Field field = of.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    private static Method method(Object of, String name) throws ReflectiveOperationException {
        Method method = of.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        return method;
    }
}
