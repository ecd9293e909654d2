import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Members of a share group, one thread each: ShareWorker BOOTSTRAP GROUP TOPIC MEMBERS WORK_US POLL_RECORDS COMMITS.
 *
 * <p>COMMITS is "record" or "poll". With "record" each record is committed as soon as its work is done, so that the next
 * of its key is free. With "poll" the next ShareFetch carries the acknowledgements of all records of a poll. It prints
 * "partition offset begin end" for each record, when its work is done.
 */
public class ShareWorker {
    public static void main(String[] arguments) {
        for (int number = 0; number < Integer.parseInt(arguments[3]); number++) {
            new Thread(() -> work(arguments)).start();
        }
    }

    private static void work(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("share.acquire.mode", "record_limit");
        settings.put("max.poll.records", arguments[5]);
        boolean commitsRecords = arguments[6].equals("record");
        long work = Long.parseLong(arguments[4]) * 1_000;
        KafkaShareConsumer<String, String> consumer =
            new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(arguments[2]));
        while (true) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                long begin = System.nanoTime();
                LockSupport.parkNanos(work);
                System.out.print(
                    record.partition() + " " + record.offset() + " " + begin + " " + System.nanoTime() + "\n");
                consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                if (commitsRecords) {
                    consumer.commitAsync();
                }
            }
        }
    }
}
