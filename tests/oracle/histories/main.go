// The judge of recorded histories of share groups: histories < FILE.
//
// It knows nothing of the proxy: a history is judged against a model of a record (available, acquired, settled), and of
// a key where the group has key order, by porcupine, a checker of linearizability. The lines are described in
// history.go, their recorder is tests/support/share_recorder.py.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	limit     = 20 * time.Second // for one record or key
	faultsMax = 50
)

type verdict struct {
	Operations int      `json:"operations"`
	Records    int      `json:"records"`
	Keys       int      `json:"keys"`
	Faulty     int      `json:"faulty"`
	Faults     []string `json:"faults"`
	Undecided  []string `json:"undecided"`
}

func main() {
	h, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
	told := verdict{Faults: []string{}, Undecided: []string{}}
	all := h.operations()
	told.Operations = len(all)
	told.Records = h.judge(h.byRecord(), all, "record", &told)
	if h.Keyed {
		told.Keys = h.judge(h.byKey(), all, "key", &told)
	}
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		os.Exit(2)
	}
}

func (h *history) operations() []porcupine.Operation {
	var all []porcupine.Operation
	for _, ops := range h.ops {
		for _, each := range ops {
			all = append(all, porcupine.Operation{Input: each, Call: each.Call, Return: each.returned()})
		}
	}
	return all
}

// judge returns the number of parts.
func (h *history) judge(model porcupine.Model, all []porcupine.Operation, what string, told *verdict) int {
	parts := model.Partition(all)
	model.Partition = nil
	for _, part := range parts {
		switch porcupine.CheckOperationsTimeout(model, part, limit) {
		case porcupine.Illegal:
			told.Faulty++
			if len(told.Faults) < faultsMax {
				told.Faults = append(told.Faults, h.name(what, part)+": "+stuck(model, part))
			}
		case porcupine.Unknown:
			told.Undecided = append(told.Undecided, h.name(what, part))
		}
	}
	return len(parts)
}

func (h *history) name(what string, part []porcupine.Operation) string {
	at := part[0].Input.(*operation).at
	if what == "key" {
		return fmt.Sprintf("key %s of partition %d", h.keys[at], at.Partition)
	}
	return fmt.Sprintf("record %d of partition %d", at.Offset, at.Partition)
}

// stuck describes the first operation that no order explains.
func stuck(model porcupine.Model, part []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(model, part, limit)
	var longest []porcupine.Operation
	for _, partials := range info.PartialLinearizationsOperations() {
		for _, each := range partials {
			if len(each) > len(longest) {
				longest = each
			}
		}
	}
	explained := map[any]bool{}
	for _, each := range longest {
		explained[each.Input] = true
	}
	sort.Slice(part, func(i, j int) bool { return part[i].Return < part[j].Return })
	for _, each := range part {
		if !explained[each.Input] {
			return describe(each.Input.(*operation)) + " is not possible after " + last(longest)
		}
	}
	return "no order explains its operations"
}

func last(longest []porcupine.Operation) string {
	text := "the beginning"
	for index := len(longest) - 1; index >= 0 && index >= len(longest)-3; index-- {
		one := describe(longest[index].Input.(*operation))
		if index == len(longest)-1 {
			text = one
		} else {
			text = one + ", " + text
		}
	}
	return text
}

func describe(op *operation) string {
	words := op.Op
	if op.Kind != "" {
		words = op.Kind + " (" + op.Outcome + ")"
	}
	end := "open"
	if op.returned() < math.MaxInt64 {
		end = fmt.Sprintf("%.3f", float64(op.returned())/1e9)
	}
	return fmt.Sprintf("%s of %d by %q, delivery %d, lock %d [%.3f, %s]", words, op.at.Offset, op.Member, op.Deliveries,
		op.Lock, float64(op.Call)/1e9, end)
}
