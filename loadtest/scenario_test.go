package loadtest

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseScenario(t *testing.T) {
	got, err := ParseScenario([]byte("# a comment\nevents:\n  - { at: 10s, do: cache add  spare }\n  - at: 1m30s\n    do: kill c2\n"))
	want := []Step{{10 * time.Second, []string{"cache", "add", "spare"}, 3}, {90 * time.Second, []string{"kill", "c2"}, 4}}
	if err != nil || !reflect.DeepEqual(got, want) || got[0].Name() != "cache add spare" {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                                    "line 1: the file is empty",
		"- a":                                 "line 1: a scenario is a mapping",
		"event:\n":                            `line 1: unknown key "event"`,
		"events: 3":                           "line 1: events must be a list",
		"events: []":                          "line 1: there are no events",
		"events:\n  - kill":                   "line 2: an event is",
		"events:\n  - { do: kill c1 }":        "line 2: at is missing",
		"events:\n  - { at: 1s }":             "line 2: do is missing",
		"events:\n  - { at: 1, do: x }":       `line 2: at is "1"`,
		"events:\n  - { at: -1s, do: x }":     `line 2: at is "-1s"`,
		"events:\n  - { at: 1s, do: [x] }":    "line 2: do must be one value",
		"events:\n  - { at: 1s, what: x }":    `line 2: unknown key "what"`,
		"events:\n  - { at: 1s, do: x\n b: c": "yaml: line",
	} {
		if _, err := ParseScenario([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
