// Records finished in any order on worker threads, each committed by itself: Kafka's Java client, and a ledger.
//
//     java -cp "kafka-clients.jar:slf4j-api.jar" IndividualCommits.java BOOTSTRAP TOPIC GROUP [WORK_S_MAX]
//
// Java 17 or later; the ledger at the end of this file needs nothing but Java. Each record says how many seconds its work
// takes ("0.2"); WORK_S_MAX cuts that short. Kill it at any time and start it again: what was finished and committed is
// skipped, even behind a record that takes for ever. It prints the partition and offset of each record it begins with.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public final class IndividualCommits implements ConsumerRebalanceListener {
    static final int WORKERS = 8;
    /** With so many records that are not finished, no more are read. */
    static final int UNFINISHED_MAX = 1000;
    static final long COMMIT_MS = 200;
    /** Others get the partitions of a member that died after this time. */
    static final int SESSION_MS = 6000;
    /** Brokers take so many characters; a kafka-share-proxy that serves individual commits has no such limit. */
    static final int TEXT_MAX = 4096;

    record Task(OffsetLedger ledger, ConsumerRecord<byte[], byte[]> record) {}

    record State(long mark, String text) {}

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final double workSecondsMax;
    private final Map<TopicPartition, OffsetLedger> ledgers = new HashMap<>();
    private final Map<TopicPartition, State> committed = new HashMap<>();
    private final BlockingQueue<Task> tasks = new LinkedBlockingQueue<>();
    private final ConcurrentLinkedQueue<Task> finished = new ConcurrentLinkedQueue<>();
    private volatile boolean stopping;

    private IndividualCommits(String bootstrap, String group, double workSecondsMax) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("session.timeout.ms", SESSION_MS);
        settings.put("isolation.level", "read_committed");
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        this.workSecondsMax = workSecondsMax;
    }

    public static void main(String[] arguments) throws InterruptedException {
        double most = arguments.length > 3 ? Double.parseDouble(arguments[3]) : Double.MAX_VALUE;
        IndividualCommits worked = new IndividualCommits(arguments[0], arguments[2], most);
        Thread polling = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> worked.stop(polling)));
        for (int number = 0; number < WORKERS; number++) {
            Thread worker = new Thread(worked::work);
            worker.setDaemon(true);
            worker.start();
        }
        worked.run(arguments[1]);
    }

    /** Commit and leave the group; what is being worked on is begun again by the next owner. */
    private void stop(Thread polling) {
        stopping = true;
        try {
            polling.join(10_000);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private void run(String topic) {
        long due = 0;
        consumer.subscribe(List.of(topic), this);
        while (!stopping) {
            holdBack();
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                OffsetLedger ledger = ledgers.get(new TopicPartition(record.topic(), record.partition()));
                if (ledger.delivered(record.offset())) { // else it was finished before a restart
                    tasks.add(new Task(ledger, record));
                }
            }
            ledgers.forEach((place, ledger) -> ledger.positionMoved(consumer.position(place)));
            if (System.currentTimeMillis() >= due) {
                settleAndCommit();
                due = System.currentTimeMillis() + COMMIT_MS;
            }
        }
        settleAndCommit();
        consumer.close();
    }

    /** Poll goes on, so that the group does not miss this member, but brings nothing. */
    private void holdBack() {
        if (ledgers.values().stream().mapToInt(OffsetLedger::outstanding).sum() >= UNFINISHED_MAX) {
            consumer.pause(consumer.assignment());
        } else {
            consumer.resume(consumer.paused());
        }
    }

    private void work() {
        try {
            while (true) {
                Task task = tasks.take();
                ConsumerRecord<byte[], byte[]> record = task.record();
                System.out.println("begin " + record.partition() + " " + record.offset());
                double seconds = Double.parseDouble(new String(record.value(), StandardCharsets.UTF_8));
                Thread.sleep((long) (Math.min(seconds, workSecondsMax) * 1000)); // the work
                finished.add(task);
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private void settleAndCommit() {
        for (Task task = finished.poll(); task != null; task = finished.poll()) {
            task.ledger().done(task.record().offset()); // it may be the ledger of a partition that was revoked
        }
        Map<TopicPartition, State> changed = new HashMap<>();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        ledgers.forEach((place, ledger) -> {
            State state = new State(ledger.mark(), ledger.text(TEXT_MAX));
            if (ledger.mark() >= 0 && !state.equals(committed.get(place))) {
                changed.put(place, state);
                offsets.put(place, new OffsetAndMetadata(state.mark(), state.text()));
            }
        });
        if (offsets.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(offsets);
            committed.putAll(changed);
        } catch (KafkaException error) { // the group rebalances: commit again later, or leave it to the next owner
            System.err.println("not committed: " + error);
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
        consumer.committed(new HashSet<>(assigned)).forEach((place, found) -> ledgers.put(
            place, found == null ? new OffsetLedger(-1, "") : new OffsetLedger(found.offset(), found.metadata())));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
        settleAndCommit();
        onPartitionsLost(revoked);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> lost) {
        ledgers.keySet().removeAll(lost);
        committed.keySet().removeAll(lost);
    }

    /** What is delivered and done of one partition: a mark below which all is done, and ranges above it. */
    static final class OffsetLedger {
        private static final String PREFIX = "ic/1;";
        private static final Pattern TEXT = Pattern.compile("ic/1;([0-9,-]*)(;pr=[0-9,-]+)?(;u=.*)?", Pattern.DOTALL);

        /** First offset of each range that is done -> the offset after its last one; no two touch. */
        private final TreeMap<Long, Long> done = new TreeMap<>();
        /** Offset of each record that is delivered and not done -> the first offset that belongs to it. */
        private final Map<Long, Long> outstanding = new HashMap<>();
        /** The rest of the text, which is kept: `;pr=...` and `;u=...`. */
        private final String rest;
        private long mark;
        private long position;

        /** Of what `committed` gave: offset (-1 for none) and metadata. */
        OffsetLedger(long offset, String metadata) {
            mark = offset;
            position = offset;
            Matcher text = TEXT.matcher(metadata.replaceAll("\0+$", ""));
            if (!text.matches()) {
                if (metadata.matches("(?s)ic/[1-9][0-9]*;.*")) {
                    throw new IllegalArgumentException("not a text of ranges that is known here: " + metadata);
                }
                rest = metadata.isEmpty() ? "" : ";u=" + metadata; // the user's own
                return;
            }
            rest = (text.group(2) == null ? "" : text.group(2)) + (text.group(3) == null ? "" : text.group(3));
            for (String range : text.group(1).isEmpty() ? new String[0] : text.group(1).split(",")) {
                int dash = range.indexOf('-');
                merge(Long.parseLong(range.substring(0, dash)), Long.parseLong(range.substring(dash + 1)) + 1);
            }
        }

        /** The next record, in order: whether it is to be processed, or was done before. It owns the gap before it. */
        boolean delivered(long offset) {
            if (mark < 0) {
                mark = offset;
                position = offset;
            }
            long begin = position;
            if (offset < begin) {
                throw new IllegalArgumentException("offset " + offset + " was delivered after position " + begin);
            }
            position = offset + 1;
            if (isDone(offset)) {
                merge(begin, position);
                return false;
            }
            outstanding.put(offset, begin);
            return true;
        }

        /** Nothing more comes before this offset: what is between is done. */
        void positionMoved(long to) {
            if (mark < 0) {
                mark = to;
            } else if (to > position) {
                merge(position, to);
            }
            position = Math.max(position, to);
        }

        /** A record is processed. */
        void done(long offset) {
            Long begin = outstanding.remove(offset);
            if (begin == null) {
                throw new IllegalArgumentException("offset " + offset + " is not delivered, or done already");
            }
            merge(begin, offset + 1);
        }

        long mark() {
            return mark;
        }

        int outstanding() {
            return outstanding.size();
        }

        boolean isDone(long offset) {
            Map.Entry<Long, Long> before = done.floorEntry(offset);
            return offset < mark || (before != null && offset < before.getValue());
        }

        /** The metadata to commit with the mark: if not all ranges fit, the widest. */
        String text(int charactersMax) {
            List<Map.Entry<Long, Long>> widest = new ArrayList<>(done.entrySet());
            widest.sort((one, other) ->
                Long.compare(other.getValue() - other.getKey(), one.getValue() - one.getKey()));
            TreeMap<Long, String> kept = new TreeMap<>();
            int room = charactersMax - PREFIX.length() - rest.length() + 1;
            for (Map.Entry<Long, Long> range : widest) {
                String shown = range.getKey() + "-" + (range.getValue() - 1);
                room -= shown.length() + 1;
                if (room < 0) {
                    break;
                }
                kept.put(range.getKey(), shown);
            }
            return PREFIX + String.join(",", kept.values()) + rest;
        }

        private void merge(long start, long end) {
            Map.Entry<Long, Long> touching = done.floorEntry(end);
            while (touching != null && touching.getValue() >= start) {
                start = Math.min(start, touching.getKey());
                end = Math.max(end, touching.getValue());
                done.remove(touching.getKey());
                touching = done.floorEntry(end);
            }
            if (start <= mark) {
                mark = Math.max(mark, end);
            } else {
                done.put(start, end);
            }
        }
    }
}
