package loadtest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Step is one event of a scenario: words, and when they are to be carried out.
type Step struct {
	At    time.Duration
	Words []string
	Line  int // of the file
}

// Name is the step as it was written.
func (s Step) Name() string { return strings.Join(s.Words, " ") }

// ParseScenario reads a scenario:
//
//	events:
//	  - { at: 10s, do: cache add spare }
//	  - { at: 20s, do: kill c2 }
//
// What the words mean is up to who carries them out. The error names the line.
func ParseScenario(text []byte) ([]Step, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}
	if doc.Kind == 0 {
		return nil, errors.New("line 1: the file is empty: it needs a list named events")
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: a scenario is a mapping with a list named events", root.Line)
	}
	var steps []Step
	for i := 0; i < len(root.Content); i += 2 {
		key, list := root.Content[i], root.Content[i+1]
		if key.Value != "events" {
			return nil, fmt.Errorf("line %d: unknown key %q; allowed is events", key.Line, key.Value)
		}
		if list.Kind != yaml.SequenceNode {
			return nil, fmt.Errorf("line %d: events must be a list of { at: 10s, do: cache add spare }", list.Line)
		}
		for _, n := range list.Content {
			s, err := parseStep(n)
			if err != nil {
				return nil, err
			}
			steps = append(steps, s)
		}
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("line %d: there are no events", root.Line)
	}
	return steps, nil
}

func parseStep(n *yaml.Node) (Step, error) {
	s := Step{Line: n.Line, At: -1}
	if n.Kind != yaml.MappingNode {
		return s, fmt.Errorf("line %d: an event is { at: 10s, do: cache add spare }", n.Line)
	}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if value.Kind != yaml.ScalarNode {
			return s, fmt.Errorf("line %d: %s must be one value", value.Line, key.Value)
		}
		switch key.Value {
		case "at":
			d, err := time.ParseDuration(value.Value)
			if err != nil || d < 0 {
				return s, fmt.Errorf("line %d: at is %q: it must be a time since the start, such as 10s", value.Line, value.Value)
			}
			s.At = d
		case "do":
			s.Words = strings.Fields(value.Value)
		default:
			return s, fmt.Errorf("line %d: unknown key %q; allowed are at and do", key.Line, key.Value)
		}
	}
	switch {
	case s.At < 0:
		return s, fmt.Errorf("line %d: at is missing: when the event is to be, since the start", n.Line)
	case len(s.Words) == 0:
		return s, fmt.Errorf("line %d: do is missing: what is to be done, such as cache add spare", n.Line)
	}
	return s, nil
}
