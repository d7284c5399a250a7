package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// topView is what ringside top shows, and what --json prints. Rates are per second, durations in milliseconds, over the time since the view before.
type topView struct {
	At       time.Time    `json:"at"`
	Seconds  float64      `json:"seconds"` // that the rates are about
	All      topTotals    `json:"all"`
	Sidecars []topSidecar `json:"sidecars"`
	Caches   []topCache   `json:"caches"`
	Shards   []topShard   `json:"shards"`
	Commands []topCount   `json:"commands"` // the most frequent ones
	Errors   []topCount   `json:"errors"`   // by their first word
	// The keys and shard keys that were used most lately, by the sidecars' samples.
	HotKeys      []topHot `json:"hot_keys"`
	HotShardKeys []topHot `json:"hot_shard_keys"`
}

// topHot is a key with its cache server, or a shard key with its shard.
type topHot struct {
	Key  string  `json:"key"`
	On   string  `json:"on"`
	Rate float64 `json:"rate"`
}

// mostHot is how many of each kind are shown.
const mostHot = 5

// topTotals are the figures of one sidecar, or of all that were asked.
type topTotals struct {
	Requests float64  `json:"requests"`
	Errors   float64  `json:"errors"`
	HitRatio *float64 `json:"hit_ratio"` // of rows; null: none were asked for
	P50      *float64 `json:"p50_ms"`    // null: no request was answered
	P99      *float64 `json:"p99_ms"`
	Clients  float64  `json:"clients"`
	Waiting  float64  `json:"waiting"` // requests that wait for cache servers
	RowOps   float64  `json:"row_operations"`

	hits, misses float64
	latency      buckets
}

type topSidecar struct {
	Name  string  `json:"name"`
	Epoch float64 `json:"epoch"`
	topTotals
	Fault string `json:"fault"` // why it could not be asked; empty: it was
}

type topCache struct {
	Name     string   `json:"name"`
	Up       bool     `json:"up"` // all sidecars that were asked can use it
	Votes    float64  `json:"votes"`
	Probe    *float64 `json:"probe_p99_ms"`
	Degraded float64  `json:"degraded"` // reads that did without it

	probes buckets
}

type topShard struct {
	Name     string   `json:"name"`
	Up       bool     `json:"up"`
	Requests float64  `json:"requests"`
	Load     *float64 `json:"load_p99_ms"`
	Write    *float64 `json:"write_p99_ms"`
	InUse    float64  `json:"sessions_in_use"`
	Limit    float64  `json:"sessions_limit"`
	Waiting  float64  `json:"queue_waiting"`
	Oldest   float64  `json:"queue_oldest_ms"`
	Shed     float64  `json:"shed"`
	Outbox   float64  `json:"outbox_rows"`

	loads, writes buckets
}

type topCount struct {
	Name string  `json:"name"`
	Rate float64 `json:"rate"`
}

// mostCommands is how many commands are shown.
const mostCommands = 8

// asked is one sidecar, as it was asked.
type asked struct {
	name  string
	over  interval
	hot   hotAnswer
	fault string
}

// hotAnswer is what is needed of /hotkeys.
type hotAnswer struct {
	Keys []struct {
		Key   string  `json:"key"`
		Cache string  `json:"cache"`
		Rate  float64 `json:"rate"`
	} `json:"keys"`
	ShardKeys []struct {
		ShardKey string  `json:"shard_key"`
		Shard    string  `json:"shard"`
		Rate     float64 `json:"rate"`
	} `json:"shard_keys"`
}

// newTopView works out what is shown.
func newTopView(all []asked) topView {
	v := topView{Sidecars: []topSidecar{}, Caches: []topCache{}, Shards: []topShard{}, All: topTotals{latency: buckets{}}}
	caches, shards := map[string]*topCache{}, map[string]*topShard{}
	commands, errs := map[string]float64{}, map[string]float64{}
	keys, shardKeys := map[[2]string]float64{}, map[[2]string]float64{}
	for _, a := range all {
		s := topSidecar{Name: a.name, Fault: a.fault}
		if a.fault == "" {
			v.At, v.Seconds = a.over.now.at, a.over.now.at.Sub(a.over.before.at).Seconds()
			s.Epoch, s.topTotals = a.over.now.sum("topology_epoch"), totalsOf(a.over)
			v.All.add(s.topTotals)
			addCaches(caches, a.over)
			addShards(shards, a.over)
			sumInto(commands, a.over.rates("commands_total", "command"))
			sumInto(errs, a.over.rates("error_replies_total", "code"))
			for _, k := range a.hot.Keys {
				keys[[2]string{k.Key, k.Cache}] += k.Rate
			}
			for _, k := range a.hot.ShardKeys {
				shardKeys[[2]string{k.ShardKey, k.Shard}] += k.Rate
			}
		}
		s.finish()
		v.Sidecars = append(v.Sidecars, s)
	}
	v.All.finish()
	for _, name := range slices.Sorted(maps.Keys(caches)) {
		c := caches[name]
		c.Probe = milliseconds(c.probes, .99)
		v.Caches = append(v.Caches, *c)
	}
	for _, name := range slices.Sorted(maps.Keys(shards)) {
		s := shards[name]
		s.Load, s.Write = milliseconds(s.loads, .99), milliseconds(s.writes, .99)
		v.Shards = append(v.Shards, *s)
	}
	v.HotKeys, v.HotShardKeys = hottest(keys), hottest(shardKeys)
	v.Commands, v.Errors = most(commands, mostCommands), most(errs, len(errs))
	return v
}

func totalsOf(i interval) topTotals {
	return topTotals{
		Requests: i.rate("commands_total"), Errors: i.rate("error_replies_total") + i.rate("upstream_error_replies_total"),
		Clients: i.now.sum("clients"), Waiting: i.now.sum("upstream_waiting_requests"), RowOps: i.now.sum("row_operations"),
		hits: i.rate("row_hits_total"), misses: i.rate("row_misses_total"),
		latency: i.observed("request_duration_seconds", func(map[string]string) string { return "" })[""],
	}
}

func (t *topTotals) add(o topTotals) {
	t.Requests, t.Errors = t.Requests+o.Requests, t.Errors+o.Errors
	t.Clients, t.Waiting, t.RowOps = t.Clients+o.Clients, t.Waiting+o.Waiting, t.RowOps+o.RowOps
	t.hits, t.misses = t.hits+o.hits, t.misses+o.misses
	t.latency.merge(o.latency)
}

// finish works out what cannot be added.
func (t *topTotals) finish() {
	if asked := t.hits + t.misses; asked > 0 {
		ratio := t.hits / asked
		t.HitRatio = &ratio
	}
	t.P50, t.P99 = milliseconds(t.latency, .5), milliseconds(t.latency, .99)
}

func addCaches(into map[string]*topCache, i interval) {
	for name, up := range i.now.by("cache_server_up", "server") {
		if into[name] == nil {
			into[name] = &topCache{Name: name, Up: true, probes: buckets{}}
		}
		into[name].Up = into[name].Up && up == 1
	}
	votes, degraded := i.now.by("cache_server_votes", "server"), i.rates("cache_degraded_reads_total", "server")
	probes := i.observed("cache_probe_seconds", func(labels map[string]string) string { return labels["server"] })
	for name, c := range into {
		c.Votes = max(c.Votes, votes[name]) // all sidecars count the same votes
		c.Degraded += degraded[name]
		c.probes.merge(probes[name])
	}
}

func addShards(into map[string]*topShard, i interval) {
	for name, up := range i.now.by("shard_up", "shard") {
		if into[name] == nil {
			into[name] = &topShard{Name: name, Up: true, loads: buckets{}, writes: buckets{}}
		}
		into[name].Up = into[name].Up && up == 1
	}
	now := func(metric string) map[string]float64 { return i.now.by("shard_"+metric, "shard") }
	inUse, limit, waiting, oldest, outbox := now("sessions_in_use"), now("sessions_limit"), now("queue_waiting"), now("queue_oldest_seconds"), now("outbox_rows")
	admitted, shed := i.rates("shard_admitted_total", "shard"), i.rates("shard_shed_total", "shard")
	took := i.observed("shard_operation_seconds", func(labels map[string]string) string { return labels["op"] + " " + labels["shard"] })
	for name, s := range into {
		s.Requests, s.Shed = s.Requests+admitted[name], s.Shed+shed[name]
		s.InUse, s.Limit, s.Waiting = s.InUse+inUse[name], s.Limit+limit[name], s.Waiting+waiting[name]
		s.Oldest, s.Outbox = max(s.Oldest, 1000*oldest[name]), max(s.Outbox, outbox[name])
		s.loads.merge(took["load "+name])
		s.writes.merge(took["write "+name])
	}
}

func sumInto(into, from map[string]float64) {
	for key, v := range from {
		into[key] += v
	}
}

func milliseconds(b buckets, q float64) *float64 {
	seconds, ok := b.quantile(q)
	if !ok {
		return nil
	}
	ms := 1000 * seconds
	return &ms
}

// hottest are those that are used most, the first one first.
func hottest(rates map[[2]string]float64) []topHot {
	out := []topHot{}
	for k, rate := range rates {
		out = append(out, topHot{k[0], k[1], rate})
	}
	slices.SortFunc(out, func(a, b topHot) int { return cmp.Or(cmp.Compare(b.Rate, a.Rate), strings.Compare(a.Key, b.Key)) })
	return out[:min(mostHot, len(out))]
}

// most are the largest of them that are more than nothing, the largest first.
func most(rates map[string]float64, n int) []topCount {
	out := []topCount{}
	for name, rate := range rates {
		if rate > 0 {
			out = append(out, topCount{name, rate})
		}
	}
	slices.SortFunc(out, func(a, b topCount) int { return cmp.Or(cmp.Compare(b.Rate, a.Rate), strings.Compare(a.Name, b.Name)) })
	return out[:min(n, len(out))]
}

// lines are the view as text.
func (v *topView) lines() []string {
	var b strings.Builder
	sidecars := &table{heading: []string{"SIDECAR", "EPOCH", "REQUESTS/S", "ERRORS/S", "HIT RATIO", "P50", "P99", "CLIENTS", "WAITING", "ROWS UNDER WAY"}}
	faults := &table{heading: []string{"SIDECAR", "CANNOT BE ASKED"}}
	figures := func(name, epoch string, t topTotals) {
		hits := "-"
		if t.HitRatio != nil {
			hits = percent(*t.HitRatio)
		}
		sidecars.add(name, epoch, perSecond(t.Requests), perSecond(t.Errors), hits, inMS(t.P50), inMS(t.P99), int64(t.Clients), int64(t.Waiting), int64(t.RowOps))
	}
	for _, s := range v.Sidecars {
		if s.Fault != "" {
			faults.add(s.Name, s.Fault)
			continue
		}
		figures(s.Name, fmt.Sprint(int64(s.Epoch)), s.topTotals)
	}
	if len(v.Sidecars) > 1 {
		figures("all", "", v.All)
	}
	caches := &table{heading: []string{"CACHE", "STATE", "VOTES", "PROBE P99", "READS WITHOUT IT/S"}}
	for _, c := range v.Caches {
		caches.add(c.Name, upOrDown(c.Up), int64(c.Votes), inMS(c.Probe), perSecond(c.Degraded))
	}
	shards := &table{heading: []string{"SHARD", "STATE", "REQUESTS/S", "LOAD P99", "WRITE P99", "IN USE", "LIMIT", "WAITING", "OLDEST", "SHED/S", "OUTBOX"}}
	for _, s := range v.Shards {
		shards.add(s.Name, upOrDown(s.Up), perSecond(s.Requests), inMS(s.Load), inMS(s.Write), int64(s.InUse), int64(s.Limit), int64(s.Waiting), inMS(&s.Oldest), perSecond(s.Shed), int64(s.Outbox))
	}
	hot := &table{heading: []string{"HOT KEY", "CACHE", "USES/S"}}
	for _, k := range v.HotKeys {
		hot.add(k.Key, k.On, perSecond(k.Rate))
	}
	hotShardKeys := &table{heading: []string{"HOT SHARD KEY", "SHARD", "USES/S"}}
	for _, k := range v.HotShardKeys {
		hotShardKeys.add(k.Key, k.On, perSecond(k.Rate))
	}
	if err := writeTables(&b, sidecars, faults, caches, shards, hot, hotShardKeys); err != nil {
		return []string{err.Error()} // not of a strings.Builder
	}
	for _, list := range []struct {
		title string
		of    []topCount
	}{{"commands/s", v.Commands}, {"errors/s", v.Errors}} {
		if len(list.of) > 0 {
			fmt.Fprintf(&b, "\n%s  ", list.title)
			for _, c := range list.of {
				fmt.Fprintf(&b, "  %s %s", printable(c.Name), perSecond(c.Rate))
			}
			b.WriteString("\n")
		}
	}
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}

func upOrDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

func perSecond(rate float64) string {
	if rate > 0 && rate < 10 {
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}

func inMS(ms *float64) string {
	switch {
	case ms == nil:
		return "-"
	case *ms == 0 || *ms >= 100:
		return fmt.Sprintf("%.0f ms", *ms)
	}
	return fmt.Sprintf("%.2g ms", *ms)
}
