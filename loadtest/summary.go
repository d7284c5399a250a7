package loadtest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"ringside/internal/childproc"
	"ringside/loadtest/gauge"
)

// NewReport begins a report: what comes later is added to it.
func NewReport(title string, plan Plan) *Report {
	return &Report{Title: title, Began: time.Now(), Machine: gauge.Machine(), LoadBefore: gauge.LoadAverage(), Plan: plan}
}

// Add adds what came of a target.
func (r *Report) Add(x *Result) {
	r.Results = append(r.Results, x)
	r.LoadAfter = gauge.LoadAverage()
}

// Signal sends a signal to a process of the cluster that is loaded and to its children.
func Signal(pid int, sig syscall.Signal) error { return childproc.SignalTree(pid, sig) }

// String is the line of progress.
func (s Second) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%4d s  %7d requests", s.At, s.Requests)
	if s.Max > 0 {
		fmt.Fprintf(&b, "  p50 %s  p99 %s  p99.9 %s", micros(s.P50), micros(s.P99), micros(s.P999))
	} else {
		b.WriteString("  none answered yet")
	}
	if s.HitRatio >= 0 {
		fmt.Fprintf(&b, "  hits %s", share(s.HitRatio))
	}
	if s.ShardReads >= 0 {
		fmt.Fprintf(&b, "  shard reads %.0f", s.ShardReads)
	}
	if s.Failed > 0 {
		fmt.Fprintf(&b, "  errors: %s", kinds(s.Errors))
	}
	return b.String()
}

// micros prints a time given in microseconds, in milliseconds. 0 is that of nothing: the least that is recorded is 1.
func micros(n int64) string {
	ms := float64(n) / 1000
	switch {
	case n == 0:
		return "-"
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

func share(ratio float64) string { return fmt.Sprintf("%.2f%%", 100*ratio) }

// orDash prints a figure, or "-" for one that is not known.
func orDash(value float64, print func(float64) string) string {
	if value < 0 {
		return "-"
	}
	return print(value)
}

func whole(value float64) string { return fmt.Sprintf("%.0f", value) }

// kinds lists errors, the most frequent kind first.
func kinds(errors map[string]uint64) string {
	names := slices.SortedFunc(maps.Keys(errors), func(a, b string) int {
		if errors[a] != errors[b] {
			if errors[a] > errors[b] {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, errors[name])
	}
	return strings.Join(names, ", ")
}

// Describe says what the load is.
func (p Plan) Describe() string {
	keys := "all alike"
	if p.Zipf > 0 {
		keys = fmt.Sprintf("Zipf %.4g", p.Zipf)
	}
	arrivals := "evenly spaced"
	if p.Poisson {
		arrivals = "at random (Poisson)"
	}
	ramp := ""
	if p.Ramp > 0 {
		ramp = fmt.Sprintf(", rising for %v", p.Ramp)
	}
	return fmt.Sprintf("%.0f requests/s for %v%s, %s; %d connections; %d keys %s, %s; %s reads; values of %d-%d bytes",
		p.Rate, p.Duration, ramp, arrivals, p.Connections, p.Keys, p.Pattern, keys, share(p.Reads), p.MinSize, p.MaxSize)
}

// WriteText writes the summary for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s; load average before %s, after %s\n\n", r.Plan.Describe(), r.Machine, r.LoadBefore, r.LoadAfter)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TARGET\tREQUESTS\tOK/S\tP50\tP99\tP99.9\tMAX\tREADS P99\tWRITES P99\tHITS\tSHARD READS\tERRORS\tSTALE\tCPU/REQUEST")
	for _, x := range r.Results {
		processor := "-"
		if x.TargetMicros > 0 {
			processor = fmt.Sprintf("%.1f us", x.TargetMicros)
		}
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", x.Name, x.Requests, x.Rate, micros(x.All.P50), micros(x.All.P99),
			micros(x.All.P999), micros(x.All.Max), micros(x.Read.P99), micros(x.Write.P99), orDash(x.HitRatio, share), orDash(x.ShardReads, whole),
			x.Failed, x.Check.Stale, processor)
	}
	_ = t.Flush() // into memory
	for _, x := range r.Results {
		x.details(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (x *Result) details(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s\n", x.Name)
	g := x.Generator
	fmt.Fprintf(b, "  generator   %.1f us of processor time a request, %.2f cores; sent late by p50 %s, p99 %s, p99.9 %s, at most %s\n",
		g.Micros, g.Cores, micros(g.Lag.P50), micros(g.Lag.P99), micros(g.Lag.P999), micros(g.Lag.Max))
	fmt.Fprintf(b, "  checked     %s\n", x.Check)
	for _, v := range x.Check.Examples {
		fmt.Fprintf(b, "    %s\n", v)
	}
	if x.Failed > 0 {
		fmt.Fprintf(b, "  errors      %s\n", kinds(x.Errors))
	}
	for _, e := range x.Events {
		fmt.Fprintf(b, "  event       %s\n", e)
	}
	for _, n := range x.Notes {
		fmt.Fprintf(b, "  note        %s\n", n)
	}
	for _, source := range [][2]string{{"hits", x.HitsFrom}, {"shard reads", x.ShardReadsFrom}} {
		if source[1] != "" {
			fmt.Fprintf(b, "  %-11s from %s\n", source[0], source[1])
		}
	}
}

// String says what was found.
func (c Check) String() string {
	text := fmt.Sprintf("%d reads: %d older than an acknowledged write, %d found nothing where one was acknowledged", c.Reads, c.Stale, c.Lost)
	if c.Back > 0 {
		text += fmt.Sprintf("; %d older than what another had read of a write under way (allowed)", c.Back)
	}
	if c.Barred > 0 {
		text += fmt.Sprintf("; %d keys no longer written, since a write of theirs failed and may come late", c.Barred)
	}
	return text
}

// String says when it was, and how it ended.
func (o Occurrence) String() string {
	text := fmt.Sprintf("%s at %.1f s", o.Name, o.At.Seconds())
	if o.Error != "" {
		return text + ": " + o.Error
	}
	return fmt.Sprintf("%s, carried out in %.1f s", text, (o.Until - o.At).Seconds())
}
