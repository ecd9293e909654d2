import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * Kafka's own assignors as the judge. In: "assignor TAB topic:count:racks,... TAB member;instance;subscription ...", the
 * subscription as the hex of what the member sends. Out: "member;assignment ...", as the hex of what the leader sends,
 * or "error ...".
 */
public class Assign {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split("\t", -1)));
        }
    }

    private static String answer(String[] parts) {
        try {
            Map<String, Subscription> members = new HashMap<>();
            for (int i = 2; i < parts.length; i++) {
                String[] member = parts[i].split(";", -1);
                Subscription subscription =
                    ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(HexFormat.of().parseHex(member[2])));
                subscription.setGroupInstanceId(member[1].isEmpty() ? Optional.empty() : Optional.of(member[1]));
                members.put(member[0], subscription);
            }
            Map<String, Assignment> assigned =
                assignor(parts[0]).assign(cluster(parts[1]), new GroupSubscription(members)).groupAssignment();
            List<String> told = new ArrayList<>();
            for (Map.Entry<String, Assignment> entry : new TreeMap<>(assigned).entrySet()) {
                ByteBuffer buffer = ConsumerProtocol.serializeAssignment(entry.getValue());
                byte[] bytes = new byte[buffer.remaining()];
                buffer.get(bytes);
                told.add(entry.getKey() + ";" + HexFormat.of().formatHex(bytes));
            }
            return String.join("\t", told);
        } catch (RuntimeException error) {
            return "error " + error.getClass().getSimpleName();
        }
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    /** One for each letter, which is its rack; "-" stands in none. */
    private static Node[] nodes(String racks) {
        Node[] nodes = new Node[racks.length()];
        for (int i = 0; i < nodes.length; i++) {
            String rack = racks.substring(i, i + 1);
            nodes[i] = new Node(i, "localhost", 9092, rack.equals("-") ? null : rack);
        }
        return nodes;
    }

    private static Cluster cluster(String topics) {
        Node node = new Node(0, "localhost", 9092);
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String topic : topics.split(",")) {
            String[] parts = topic.split(":");
            String[] racks = parts.length < 3 ? new String[0] : parts[2].split("/", -1);
            for (int i = 0; i < Integer.parseInt(parts[1]); i++) {
                Node[] nodes = racks.length == 0 ? new Node[] {node} : nodes(racks[i]);
                partitions.add(new PartitionInfo(parts[0], i, nodes[0], nodes, nodes));
            }
        }
        return new Cluster("judge", List.of(node), partitions, Set.of(), Set.of());
    }
}
