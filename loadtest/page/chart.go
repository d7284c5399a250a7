package page

import (
	"fmt"
	"strings"

	"ringside/loadtest"
)

// chart is one drawing.
type chart struct {
	ID, Title, About string
	YTicks, XTicks   []tick
	Lines            []line
	Marks            []mark
}

// line is one series.
type line struct {
	Name  string
	Color int // of the palette
	Dash  int
	Path  string
	Dots  []dot // what is shown when pointed at
}

type dot struct {
	X, Y  float64
	Label string
}

// mark is an event on the time line: from when it was begun until it was carried out.
type mark struct {
	Number      int
	X, Wide     float64
	Name, State string
}

// series is the values of one line, by second; negative: not known.
type series struct {
	name        string
	color, dash int
	values      []float64
}

// mostDots is how many seconds a chart may have for every one of them to be pointed at.
const mostDots = 400

// draw makes a chart of series; nil if none has a value.
func draw(id, title, about string, seconds float64, events []loadtest.Occurrence, log bool, label func(float64) string, all ...series) *chart {
	lowest, highest, any := 0.0, 0.0, false
	for _, s := range all {
		for _, v := range s.values {
			if v < 0 || log && v == 0 {
				continue
			}
			if !any || v < lowest {
				lowest = v
			}
			highest, any = max(highest, v), true
		}
	}
	if !any {
		return nil
	}
	y := linear(highest, label)
	if log {
		y = logarithmic(lowest, highest, label)
	}
	c := &chart{ID: id, Title: title, About: about, YTicks: y.ticks, XTicks: timeTicks(seconds), Marks: marks(events, seconds)}
	for _, s := range all {
		if l := trace(s, y, log, seconds, label); l.Path != "" {
			c.Lines = append(c.Lines, l)
		}
	}
	return c
}

// trace draws one line, with a gap where nothing is known. A second is drawn at its middle.
func trace(s series, y scale, log bool, seconds float64, label func(float64) string) line {
	l := line{Name: s.name, Color: s.color, Dash: s.dash}
	var path strings.Builder
	pen := "M"
	for i, v := range s.values {
		if v < 0 || log && v == 0 {
			pen = "M"
			continue
		}
		px, py := x(float64(i)+0.5, seconds), y.y(v)
		fmt.Fprintf(&path, "%s%.1f %.1f", pen, px, py)
		if pen == "M" {
			fmt.Fprintf(&path, "h0.1") // so that a single point is seen
		}
		pen = "L"
		if len(s.values) <= mostDots {
			l.Dots = append(l.Dots, dot{px, py, fmt.Sprintf("%s, second %d: %s", s.name, i, label(v))})
		}
	}
	l.Path = path.String()
	return l
}

func marks(events []loadtest.Occurrence, seconds float64) []mark {
	var list []mark
	for i, e := range events {
		from, until := x(e.At.Seconds(), seconds), x(max(e.Until, e.At).Seconds(), seconds)
		list = append(list, mark{Number: i + 1, X: from, Wide: until - from, Name: e.Name, State: e.String()})
	}
	return list
}

// of takes one figure of each second.
func of(r *loadtest.Result, figure func(loadtest.Second) float64) []float64 {
	values := make([]float64, len(r.Seconds))
	for i, s := range r.Seconds {
		values[i] = figure(s)
	}
	return values
}

// events are those of the first result, ringside's. The others' are at the same times.
func events(r *loadtest.Report) []loadtest.Occurrence {
	if len(r.Results) == 0 {
		return nil
	}
	return r.Results[0].Events
}

// charts of a report.
func charts(r *loadtest.Report) []*chart {
	seconds := r.Plan.Duration.Seconds()
	occurred := events(r)
	each := func(figure func(loadtest.Second) float64) []series {
		var all []series
		for i, x := range r.Results {
			all = append(all, series{x.Name, i, i, of(x, figure)})
		}
		return all
	}
	latency := []series{}
	for i, x := range r.Results {
		for dash, p := range []struct {
			name  string
			value func(loadtest.Second) int64
		}{
			{"p50", func(s loadtest.Second) int64 { return s.P50 }}, {"p99", func(s loadtest.Second) int64 { return s.P99 }},
			{"p99.9", func(s loadtest.Second) int64 { return s.P999 }},
		} {
			if len(r.Results) > 1 && dash != 1 {
				continue // of several only one, to be seen apart
			}
			name, color := p.name, dash
			if len(r.Results) > 1 {
				name, color = x.Name+" "+p.name, i
			}
			latency = append(latency, series{name, color, color, of(x, func(s loadtest.Second) float64 { return float64(p.value(s)) })})
		}
	}
	list := []*chart{
		draw("hits", "Hit ratio", "Share of reads that were answered without a shard.", seconds, occurred, false, percent,
			each(func(s loadtest.Second) float64 { return s.HitRatio })...),
		draw("shardreads", "Shard reads", "Rows read from the database, each second.", seconds, occurred, false, count,
			each(func(s loadtest.Second) float64 { return s.ShardReads })...),
		draw("latency", "Latency", "From when a request was due; logarithmic.", seconds, occurred, true, micros, latency...),
		draw("answered", "Requests answered", "Without an error, each second.", seconds, occurred, false, count,
			each(func(s loadtest.Second) float64 { return float64(s.Requests - min(s.Failed, s.Requests)) })...),
	}
	if failed(r) {
		list = append(list, draw("errors", "Errors", "Requests that failed, each second.", seconds, occurred, false, count,
			each(func(s loadtest.Second) float64 { return float64(s.Failed) })...))
	}
	var drawn []*chart
	for _, c := range list {
		if c != nil {
			drawn = append(drawn, c)
		}
	}
	return drawn
}

func failed(r *loadtest.Report) bool {
	for _, x := range r.Results {
		if x.Failed > 0 {
			return true
		}
	}
	return false
}
