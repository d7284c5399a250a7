package proxy

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"time"
)

// SlowLines says how slow requests are logged.
type SlowLines uint8

// The ways.
const (
	NoSlowLines SlowLines = iota
	MaskedKeys            // a hash of a row's key stands for it, another one in each process: the same key is known again, but not which one it is
	ShownKeys
)

// slowLines bounds the lines of one loop: when the machine is overloaded, every request is slow.
type slowLines struct {
	second  int64 // worker.now, in seconds, that written is about
	written int
	leftOut int // since the last line
}

// mostSlowLines is how many lines one loop writes in a second.
const mostSlowLines = 10

// take reports whether a line may be written at that time, and how many were not since the last one.
func (l *slowLines) take(now int64) (leftOut int, ok bool) {
	if second := now / int64(time.Second); second != l.second {
		l.second, l.written = second, 0
	}
	if l.written == mostSlowLines {
		l.leftOut++
		return 0, false
	}
	l.written++
	leftOut, l.leftOut = l.leftOut, 0
	return leftOut, true
}

// logSlow writes a line about a slow request, on a goroutine, since whoever reads the log may be slow too; while one is at it no other is begun.
// The key, and all that follows from it, is known of rows only: see slowlog.
func (w *worker) logSlow(r *request, e slowEntry) {
	how := w.server.live().SlowLines
	if how == NoSlowLines {
		return
	}
	leftOut, ok := w.slowLines.take(w.now)
	if !ok || !w.server.writingSlow.CompareAndSwap(false, true) {
		if ok {
			w.slowLines.leftOut += leftOut + 1
		}
		return
	}
	attrs := []slog.Attr{slog.String("command", spoken(e.command.Name)), milliseconds("took_ms", int64(e.took)), slog.String("client", w.server.addressOfClient(e.addr))}
	attrs = append(attrs, w.rowAttrs(r, e, how)...)
	if leftOut > 0 {
		attrs = append(attrs, slog.Int("left_out", leftOut))
	}
	s := w.server
	s.goroutines.Add(1)
	go func() {
		defer s.goroutines.Done()
		s.log.LogAttrs(context.Background(), slog.LevelInfo, "slow request", attrs...)
		s.writingSlow.Store(false)
	}()
}

// rowAttrs say where the row of a request lives, and how long each stage took: cache until it was known that the cached copy does not answer, or, for a hit, until it
// did; row the goroutine that asked the cache server and the shard, or wrote; reply from then on.
func (w *worker) rowAttrs(r *request, e slowEntry, how SlowLines) []slog.Attr {
	if e.key == "" {
		return nil
	}
	shown := e.key
	if how == MaskedKeys {
		shown = fmt.Sprintf("#%016x", maphash.String(w.server.slowSeed, e.key)) // which nobody else can work out
	}
	attrs := []slog.Attr{slog.String("key", shown)}
	if t := w.route.topology; t != nil {
		if l, err := t.Locate(w.server.keyspaces, []byte(e.key)); err == nil {
			attrs = append(attrs, slog.String("keyspace", l.Keyspace), slog.Int("cache_vnode", int(l.CacheVnode)), slog.String("cache", l.Cache))
			if l.Shard != nil {
				attrs = append(attrs, slog.Int("shard_vnode", int(*l.ShardVnode)), slog.String("shard", *l.Shard))
			}
		}
	}
	end := r.start + int64(e.took)
	switch {
	case r.left == 0: // the cache has answered
		return append(attrs, milliseconds("cache_ms", end-r.start))
	case r.back == 0:
		return append(attrs, milliseconds("cache_ms", r.left-r.start), milliseconds("row_ms", end-r.left))
	}
	return append(attrs, milliseconds("cache_ms", r.left-r.start), milliseconds("row_ms", r.back-r.left), milliseconds("reply_ms", end-r.back))
}

func milliseconds(name string, ns int64) slog.Attr { return slog.Float64(name, float64(ns/1000)/1000) }
