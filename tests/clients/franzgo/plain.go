package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// A reader with default settings: franzgo plain BOOTSTRAP GROUP TOPIC COUNT [USER PASSWORD].
// Reads a topic as a member of a group and writes the lines of tests/support/plain_reader.py.
func plainReader(arguments []string) {
	want, err := strconv.Atoi(arguments[3])
	check(err, "count")
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(arguments[0], ",")...), kgo.ConsumerGroup(arguments[1]), kgo.ConsumeTopics(arguments[2]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if len(arguments) > 4 {
		login := plain.Auth{User: arguments[4], Pass: arguments[5]}
		options = append(options, kgo.SASL(login.AsMechanism()))
	}
	client, err := kgo.NewClient(options...)
	check(err, "new client")
	defer client.Close()
	told := newTeller()
	defer told.flush()
	for values := map[string]bool{}; len(values) < want; {
		fetches := client.PollFetches(context.Background())
		if errors := fetches.Errors(); len(errors) > 0 {
			told.tell("error", errors[0].Err.Error())
			return
		}
		fetches.EachRecord(func(record *kgo.Record) {
			values[string(record.Value)] = true
			told.tell("value", string(record.Value))
		})
	}
}
