// Everything that Sarama offers at a target: sarama target BOOTSTRAP TOPIC
// Prints what it saw as one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const (
	targetRecords    = 30
	targetPartitions = 3
	targetLimit      = 60 * time.Second
)

func check(err error, doing string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", doing, err)
		os.Exit(1)
	}
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	return config
}

// Admin, idempotent produce, a group that commits, and two transactions of which the first is aborted.
func target(bootstrap, topic string) {
	servers := strings.Split(bootstrap, ",")
	shown := map[string]any{}
	admin, err := sarama.NewClusterAdmin(servers, settings())
	check(err, "new admin")
	for _, name := range []string{topic, topic + "-t"} {
		check(admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: targetPartitions, ReplicationFactor: 3}, false), "create")
	}
	idempotent := settings()
	idempotent.Producer.Idempotent, idempotent.Net.MaxOpenRequests = true, 1
	idempotent.Producer.RequiredAcks = sarama.WaitForAll
	shown["produced"] = produce(servers, topic, idempotent)
	shown["consumed"] = consume(servers, topic)
	shown["committed"] = committed(admin, topic)
	shown["transactions"] = transactions(servers, topic)
	topics, err := admin.ListTopics()
	check(err, "list topics")
	shown["topics"] = len(topics)
	check(admin.DeleteConsumerGroup(topic+"-group"), "delete group")
	for _, name := range []string{topic, topic + "-t"} {
		check(admin.DeleteTopic(name), "delete topic")
	}
	check(admin.Close(), "close")
	line, err := json.Marshal(shown)
	check(err, "marshal")
	fmt.Println(string(line))
}

func produce(servers []string, topic string, config *sarama.Config) int {
	producer, err := sarama.NewSyncProducer(servers, config)
	check(err, "new producer")
	for i := range targetRecords {
		value := sarama.StringEncoder(fmt.Sprint("v", i))
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: int32(i % targetPartitions), Value: value})
		check(err, "produce")
	}
	check(producer.Close(), "close the producer")
	return targetRecords
}

func consume(servers []string, topic string) int {
	config := settings()
	config.Consumer.Offsets.AutoCommit.Interval = 50 * time.Millisecond
	ctx, stop := context.WithTimeout(context.Background(), targetLimit)
	defer stop()
	group, err := sarama.NewConsumerGroup(servers, topic+"-group", config)
	check(err, "new group")
	read := &reader{map[string]bool{}, targetRecords, stop}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{topic}, read); ctx.Err() == nil {
			check(err, "consume")
		}
	}
	check(group.Close(), "close the group")
	return len(read.left)
}

func committed(admin sarama.ClusterAdmin, topic string) []int64 {
	found, err := admin.ListConsumerGroupOffsets(topic+"-group", map[string][]int32{topic: {0, 1, 2}})
	check(err, "fetch offsets")
	var offsets []int64
	for partition := range int32(targetPartitions) {
		offsets = append(offsets, found.GetBlock(topic, partition).Offset)
	}
	return offsets
}

// Returns what a reader of committed records sees.
func transactions(servers []string, topic string) []string {
	config := settings()
	config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Transaction.ID = topic + "-id"
	producer, err := sarama.NewSyncProducer(servers, config)
	check(err, "new transactional producer")
	for _, value := range []string{"aborted", "committed"} {
		check(producer.BeginTxn(), "begin")
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic + "-t", Value: sarama.StringEncoder(value)})
		check(err, "produce in a transaction")
		if value == "aborted" {
			check(producer.AbortTxn(), "abort")
		} else {
			offset := map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: 0, Offset: 4}}}
			check(producer.AddOffsetsToTxn(offset, topic+"-group"), "add offsets")
			check(producer.CommitTxn(), "commit")
		}
	}
	check(producer.Close(), "close the transactional producer")
	reading := settings()
	reading.Consumer.IsolationLevel = sarama.ReadCommitted
	consumer, err := sarama.NewConsumer(servers, reading)
	check(err, "new consumer")
	partition, err := consumer.ConsumePartition(topic+"-t", 0, sarama.OffsetOldest)
	check(err, "consume a partition")
	var seen []string
	select {
	case message := <-partition.Messages():
		seen = append(seen, string(message.Value))
	case <-time.After(targetLimit):
	}
	check(partition.Close(), "close the partition")
	check(consumer.Close(), "close the consumer")
	sort.Strings(seen)
	return seen
}
