// Sarama with default settings: sarama BOOTSTRAP GROUP TOPIC COUNT [USER PASSWORD]
// Reads a topic as a member of a group and writes the lines of tests/support/plain_reader.py. At a target: target.go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
)

type reader struct {
	left map[string]bool
	want int
	stop context.CancelFunc
}

func tell(kind, text string) {
	line, _ := json.Marshal([]string{kind, text})
	fmt.Println(string(line))
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			r.got(message.Value)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (r *reader) got(value []byte) {
	lock <- struct{}{}
	defer func() { <-lock }()
	r.left[string(value)] = true
	tell("value", string(value))
	if len(r.left) >= r.want {
		r.stop()
	}
}

var lock = make(chan struct{}, 1)

func main() {
	arguments := os.Args[1:]
	if arguments[0] == "target" {
		target(arguments[1], arguments[2])
		return
	}
	want, _ := strconv.Atoi(arguments[3])
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	if len(arguments) > 4 {
		config.Net.SASL.Enable = true
		config.Net.SASL.User, config.Net.SASL.Password = arguments[4], arguments[5]
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	group, err := sarama.NewConsumerGroup(strings.Split(arguments[0], ","), arguments[1], config)
	if err != nil {
		tell("error", err.Error())
		return
	}
	defer group.Close()
	read := &reader{map[string]bool{}, want, stop}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{arguments[2]}, read); err != nil && ctx.Err() == nil {
			tell("error", err.Error())
			return
		}
	}
}
