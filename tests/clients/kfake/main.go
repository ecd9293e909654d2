// A kfake cluster of one broker with a topic of one partition: kfake TOPIC
// Prints its address when it serves, and ends with its stdin.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, os.Args[1]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer cluster.Close()
	fmt.Println(cluster.ListenAddrs()[0])
	io.Copy(io.Discard, os.Stdin)
}
