package page

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"ringside/loadtest"
)

func report() *loadtest.Report {
	plan := loadtest.DefaultPlan()
	plan.Duration = 4 * time.Second
	r := loadtest.NewReport("A <test>", plan)
	x := &loadtest.Result{
		Name: "ringside", Judged: true, Requests: 400, HitRatio: 0.9, ShardReads: 40, Failed: 3, Errors: map[string]uint64{"TRYAGAIN": 3},
		Events: []loadtest.Occurrence{
			{Name: "cache add spare", At: time.Second, Until: 3 * time.Second},
			{Name: `kill <c2> "x"`, At: 2 * time.Second, Until: 2 * time.Second, Error: "it & was gone"},
		},
	}
	for i := range 4 {
		s := loadtest.Second{At: i, Requests: 100, P50: 200, P99: 3000, P999: 20_000, HitRatio: 0.9, ShardReads: 10}
		if i == 2 {
			s.HitRatio, s.ShardReads, s.Failed = -1, -1, 3
		}
		x.Seconds = append(x.Seconds, s)
	}
	r.Add(x)
	return r
}

func TestThePageNeedsNothingElse(t *testing.T) {
	var out strings.Builder
	if err := Write(&out, report()); err != nil {
		t.Fatal(err)
	}
	html := out.String()
	for _, bad := range []string{"http:", "https:", "src=", "href=", "@import", "url(", "<script", "<c2>", "A <test>", "ZgotmplZ", "NaN", "%!"} {
		if strings.Contains(html, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, want := range []string{
		"A &lt;test&gt;", "cache add spare at 1.0 s, carried out in 2.0 s", "it &amp; was gone", "TRYAGAIN 3", "prefers-color-scheme: dark",
		`id="hits"`, `id="shardreads"`, `id="latency"`, `id="answered"`, `id="errors"`, "90%", "p99.9", "20 ms",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	drawings := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(html, -1)
	if len(drawings) < 5 {
		t.Fatalf("%d drawings", len(drawings))
	}
	for _, svg := range drawings {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %s", err, svg)
			}
		}
	}
}

func TestVerdict(t *testing.T) {
	r := report()
	if text, bad := verdict(r); !bad || !strings.Contains(text, "it & was gone") {
		t.Errorf("%q, %v", text, bad)
	}
	r.Results[0].Events = nil
	if text, bad := verdict(r); bad || !strings.Contains(text, "none was older") {
		t.Errorf("%q, %v", text, bad)
	}
	r.Results[0].Check.Stale = 2
	if text, bad := verdict(r); !bad || !strings.HasPrefix(text, "2 reads") {
		t.Errorf("%q, %v", text, bad)
	}
}

func TestLinearScale(t *testing.T) {
	for _, c := range []struct {
		highest, high float64
		ticks         int
	}{{0, 1, 5}, {1, 1, 5}, {0.5, 0.6, 4}, {7, 8, 5}, {1234, 1500, 4}, {2000, 2000, 5}} {
		s := linear(c.highest, count)
		if math.Abs(s.high-c.high) > 1e-9 || len(s.ticks) != c.ticks {
			t.Errorf("up to %v: scale to %v with %d ticks, want %v and %d", c.highest, s.high, len(s.ticks), c.high, c.ticks)
		}
		if bottom := s.y(0); bottom != height-below {
			t.Errorf("0 is drawn at %v", bottom)
		}
		if s.y(c.highest) < top-1e-9 {
			t.Errorf("%v is drawn above the chart", c.highest)
		}
	}
}

func TestLogarithmicScale(t *testing.T) {
	s := logarithmic(150, 30_000, micros)
	if s.low != 100 || s.high != 100_000 || len(s.ticks) != 4 || s.ticks[1].Label != "1 ms" {
		t.Errorf("%+v", s)
	}
	if middle := (s.y(100) + s.y(100_000)) / 2; math.Abs(s.y(math.Sqrt(100*100_000))-middle) > 1e-9 {
		t.Error("the middle of a logarithmic scale is the geometric one")
	}
	if one := logarithmic(100, 100, micros); one.high <= one.low {
		t.Errorf("%+v", one)
	}
}

// What is not known is a gap, not a zero.
func TestTraceLeavesGaps(t *testing.T) {
	l := trace(series{"a", 0, 0, []float64{1, 1, -1, 1}}, linear(1, count), false, 4, count)
	if strings.Count(l.Path, "M") != 2 || strings.Count(l.Path, "L") != 1 || len(l.Dots) != 3 {
		t.Errorf("%s", l.Path)
	}
	if c := draw("x", "", "", 4, nil, false, count, series{"a", 0, 0, []float64{-1, -1}}); c != nil {
		t.Errorf("a chart of nothing: %+v", c)
	}
}
