package sidecar

import (
	"slices"
	"testing"
	"time"

	"ringside/cache"
	"ringside/shard"
)

func TestStood(t *testing.T) {
	preparing, active := shard.View{Epoch: 2, Phase: shard.Preparing, From: 1}, shard.View{Epoch: 2, Phase: shard.Active, From: 1}
	for _, c := range []struct {
		was, now shard.View
		age      time.Duration
		want     bool
	}{
		{preparing, preparing, 0, true},
		{preparing, preparing, time.Second, true},
		{preparing, preparing, time.Second + 1, false}, // a phase may have come and been held unheard
		{preparing, active, 0, false},
		{active, shard.View{Epoch: 2, Phase: shard.Done, From: 1}, 0, false},
		{preparing, shard.View{}, 0, false}, // forgotten: the machine was paused
	} {
		if got := stood(c.was, c.now, c.age, time.Second); got != c.want {
			t.Errorf("%v, then %v, after %v: %v", c.was, c.now, c.age, got)
		}
	}
}

func TestWithout(t *testing.T) {
	a, b, c := cache.Ref{Server: "c1", Name: "a"}, cache.Ref{Server: "c2", Name: "a"}, cache.Ref{Server: "c1", Name: "a", RunID: "r2"}
	for _, x := range []struct{ refs, done, want []cache.Ref }{
		{[]cache.Ref{a, b}, nil, []cache.Ref{a, b}},
		{[]cache.Ref{a, b}, []cache.Ref{a}, []cache.Ref{b}},
		{[]cache.Ref{a, b}, []cache.Ref{b, a}, nil},
		{[]cache.Ref{c, b}, []cache.Ref{a, b}, []cache.Ref{c}}, // another process has another entry
	} {
		if got := without(slices.Clone(x.refs), x.done); !slices.Equal(got, x.want) {
			t.Errorf("%v without %v: %v", x.refs, x.done, got)
		}
	}
}
