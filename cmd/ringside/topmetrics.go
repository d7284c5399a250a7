package main

import (
	"bytes"
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scrape is what the metrics of one sidecar were at one time.
type scrape struct {
	at       time.Time
	families map[string]*dto.MetricFamily
}

func readScrape(at time.Time, text []byte) (scrape, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	return scrape{at, families}, err
}

// each calls f for every series of a metric of ringside.
func (s scrape) each(name string, f func(labels map[string]string, m *dto.Metric)) {
	for _, m := range s.families["ringside_"+name].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		f(labels, m)
	}
}

func valueOf(m *dto.Metric) float64 {
	if c := m.GetCounter(); c != nil {
		return c.GetValue()
	}
	return m.GetGauge().GetValue()
}

// by sums a metric by one of its labels; label "" sums all.
func (s scrape) by(name, label string) map[string]float64 {
	out := map[string]float64{}
	s.each(name, func(labels map[string]string, m *dto.Metric) { out[labels[label]] += valueOf(m) })
	return out
}

func (s scrape) sum(name string) float64 {
	total := 0.0
	for _, v := range s.by(name, "") {
		total += v
	}
	return total
}

// interval is two scrapes of one sidecar, between which it counted.
type interval struct{ before, now scrape }

// rates is how much a counter has risen a second, by one of its labels. One that was begun anew meanwhile, with its process, counts from 0.
func (i interval) rates(name, label string) map[string]float64 {
	seconds := max(i.now.at.Sub(i.before.at).Seconds(), 1e-3)
	before, out := i.before.by(name, label), map[string]float64{}
	for key, v := range i.now.by(name, label) {
		if was := before[key]; was <= v {
			v -= was
		}
		out[key] = v / seconds
	}
	return out
}

func (i interval) rate(name string) float64 {
	total := 0.0
	for _, v := range i.rates(name, "") {
		total += v
	}
	return total
}

// buckets are a histogram's: how many observations were up to each bound.
type buckets map[float64]float64

// observed are the buckets of what was observed in the interval, by key.
func (i interval) observed(name string, key func(labels map[string]string) string) map[string]buckets {
	out := map[string]buckets{}
	add := func(s scrape, sign float64) {
		s.each(name, func(labels map[string]string, m *dto.Metric) {
			k := key(labels)
			if out[k] == nil {
				out[k] = buckets{}
			}
			for _, b := range m.GetHistogram().GetBucket() {
				if !math.IsInf(b.GetUpperBound(), 1) { // that one is the count, below
					out[k][b.GetUpperBound()] += sign * float64(b.GetCumulativeCount())
				}
			}
			out[k][math.Inf(1)] += sign * float64(m.GetHistogram().GetSampleCount())
		})
	}
	add(i.now, 1)
	add(i.before, -1)
	for _, b := range out {
		if b[math.Inf(1)] < 0 { // the process was started anew
			return i.restarted().observed(name, key)
		}
	}
	return out
}

func (i interval) restarted() interval { return interval{scrape{at: i.before.at}, i.now} }

// merge adds those of another sidecar.
func (b buckets) merge(o buckets) {
	for bound, n := range o {
		b[bound] += n
	}
}

// quantile is the q-th quantile, in seconds, between the bounds of its bucket; false: nothing was observed.
func (b buckets) quantile(q float64) (float64, bool) {
	total := b[math.Inf(1)]
	if total <= 0 {
		return 0, false
	}
	bounds := make([]float64, 0, len(b))
	for bound := range b {
		bounds = append(bounds, bound)
	}
	slices.Sort(bounds)
	rank, low, below := q*total, 0.0, 0.0
	for _, bound := range bounds {
		if b[bound] >= rank {
			if math.IsInf(bound, 1) {
				return low, true // all that is known is that it took longer
			}
			if b[bound] > below {
				low += (bound - low) * (rank - below) / (b[bound] - below)
			}
			return low, true
		}
		low, below = bound, b[bound]
	}
	return low, true
}
