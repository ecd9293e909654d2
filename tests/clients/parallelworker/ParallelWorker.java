import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Confluent's Parallel Consumer in mode KEY: ParallelWorker BOOTSTRAP GROUP TOPIC CONCURRENCY WORK_US COMMIT_MS.
 *
 * <p>A short session timeout, so that a replacement does not wait for a killed process. All else has its default.
 * <p>It prints "partition offset begin end" for each record, when its work is done.
 */
public class ParallelWorker {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("session.timeout.ms", "6000");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        long work = Long.parseLong(arguments[4]) * 1_000;
        KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        ParallelConsumerOptions<String, String> options = ParallelConsumerOptions.<String, String>builder()
            .ordering(ProcessingOrder.KEY)
            .maxConcurrency(Integer.parseInt(arguments[3]))
            .commitInterval(Duration.ofMillis(Long.parseLong(arguments[5])))
            .consumer(consumer)
            .build();
        ParallelStreamProcessor<String, String> processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(arguments[2]));
        processor.poll(context -> {
            long begin = System.nanoTime();
            LockSupport.parkNanos(work);
            int partition = context.getSingleConsumerRecord().partition();
            System.out.print(partition + " " + context.offset() + " " + begin + " " + System.nanoTime() + "\n");
        });
    }
}
