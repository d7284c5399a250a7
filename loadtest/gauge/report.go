package gauge

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
)

// Report is everything that was measured.
type Report struct {
	Machine    string   `json:"machine"`
	LoadBefore string   `json:"load_before"` // the system's load averages: what else was going on
	LoadAfter  string   `json:"load_after"`
	Rounds     int      `json:"rounds"`
	Ratios     string   `json:"ratios"` // of what to what
	Figures    []Figure `json:"figures"`
	Failures   []string `json:"failures,omitempty"` // what could not be measured, and why
}

// Missed is how many figures do not reach their limit.
func (r *Report) Missed() int {
	n := 0
	for _, f := range r.Figures {
		if !f.OK {
			n++
		}
	}
	return n
}

// WriteJSON writes it for machines.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteText writes it as a table.
func (r *Report) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%s; load before %s, after %s; %d rounds; ratios are %s\n\n", r.Machine, r.LoadBefore, r.LoadAfter, r.Rounds, r.Ratios)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "measure\tfigure\ttarget\tmeasured\tlowest..highest\t\tmedians")
	for _, f := range r.Figures {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.3g\t%.3g..%.3g\t%s\t%s\n", f.Measure, f.What, f.Target, f.Value, f.Low, f.High, f.verdict(), f.Detail)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d of %d figures missed\n", r.Missed(), len(r.Figures))
	return err
}

// Machine says what it was measured on.
func Machine() string {
	return fmt.Sprintf("%s/%s, %d cores%s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), processorName())
}

// processorName is what Linux calls the processor; nothing elsewhere.
func processorName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return " of " + strings.TrimSpace(value)
		}
	}
	return ""
}

// LoadAverage is the system's, over 1, 5 and 15 minutes.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
