package cache

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// page is what a logger writes on from several goroutines.
type page struct {
	mu   sync.Mutex // guards the following
	text bytes.Buffer
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func TestLogRedis(t *testing.T) {
	defer LogRedis(slog.New(slog.DiscardHandler)) // as TestMain has it
	for level, want := range map[slog.Level]bool{slog.LevelDebug: true, slog.LevelInfo: false} {
		p := new(page)
		LogRedis(slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: level})))
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
		if err := c.Ping(ctxb).Err(); err == nil {
			t.Fatal("somebody listens on port 1")
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		p.mu.Lock()
		if got := p.text.String(); strings.Contains(got, "127.0.0.1:1") != want {
			t.Errorf("at level %s: %q", level, got)
		}
		p.mu.Unlock()
	}
}
