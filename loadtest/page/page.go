package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"

	"ringside/loadtest"
)

//go:embed page.html
var source string

// content is what the template shows.
type content struct {
	*loadtest.Report
	Charts        []*chart
	Marks         []mark
	Width, Height float64
	Plot          box
	Verdict       string
	Bad           bool
}

// box is the part of a drawing within the axes.
type box struct{ Left, Right, Top, Bottom float64 }

// Height is from the top to the bottom.
func (b box) Height() float64 { return b.Bottom - b.Top }

// Write writes the page.
func Write(w io.Writer, r *loadtest.Report) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"micros":  duration,
		"percent": unless(percent),
		"count":   unless(count),
		"kinds":   kinds,
		"fixed":   func(v float64) string { return fmt.Sprintf("%.1f", v) },
		"cores":   func(v float64) string { return fmt.Sprintf("%.2f", v) },
	}).Parse(source)
	if err != nil {
		return fmt.Errorf("the template of the report: %w", err)
	}
	c := content{Report: r, Charts: charts(r), Marks: marks(events(r), r.Plan.Duration.Seconds()), Width: width, Height: height, Plot: box{left, width - right, top, height - below}}
	c.Verdict, c.Bad = verdict(r)
	var out bytes.Buffer
	if err := t.Execute(&out, c); err != nil {
		return fmt.Errorf("the report: %w", err)
	}
	_, err = w.Write(out.Bytes())
	return err
}

// duration shows a dash for the time of nothing: the least that is recorded is 1.
func duration(n int64) string {
	if n == 0 {
		return "–"
	}
	return micros(float64(n))
}

// unless shows a dash for what is not known.
func unless(label func(float64) string) func(float64) string {
	return func(v float64) string {
		if v < 0 {
			return "–"
		}
		return label(v)
	}
}

// verdict says in a sentence whether what was read was right.
func verdict(r *loadtest.Report) (string, bool) {
	if n := r.Violations(); n > 0 {
		return fmt.Sprintf("%d reads returned something older than an acknowledged write, or nothing.", n), true
	}
	if undone := r.Undone(); undone != "" {
		return undone, true
	}
	var checked uint64
	for _, x := range r.Results {
		if x.Judged {
			checked += x.Check.Reads
		}
	}
	return fmt.Sprintf("%d reads of ringside were checked: none was older than an acknowledged write.", checked), false
}

type kind struct {
	Name string
	N    uint64
}

func kinds(errors map[string]uint64) []kind {
	var list []kind
	for _, name := range slices.Sorted(maps.Keys(errors)) {
		list = append(list, kind{name, errors[name]})
	}
	return list
}
