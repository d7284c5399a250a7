package membership

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
)

const (
	logBurst  = 5                // lines of one kind
	logEvery  = 10 * time.Second // in this time
	logKinds  = 64               // kinds told apart; the rest share one
	logPrefix = 40               // bytes by which kinds are told apart
)

// logWriter turns memberlist's lines ("[WARN] memberlist: ...") into slog records. memberlist logs one line per packet that it
// refuses (another cluster's label, a wrong key, a name in dispute), so lines that begin alike are limited; the number left out is
// told with the next one.
type logWriter struct {
	log *slog.Logger
	now func() time.Time

	mu    sync.Mutex
	kinds map[string]*logKind
}

type logKind struct {
	from    time.Time
	written int
	omitted int
}

func newLogWriter(log *slog.Logger) *logWriter {
	return &logWriter{log: log, now: time.Now, kinds: map[string]*logKind{}}
}

var _ io.Writer = (*logWriter)(nil)

// Write takes one line; log.Logger calls it once per line.
func (w *logWriter) Write(line []byte) (int, error) {
	level, msg := parseLog(string(bytes.TrimSpace(line)))
	ctx := context.Background()
	if msg == "" || !w.log.Enabled(ctx, level) {
		return len(line), nil
	}
	if ok, omitted := w.admit(msg); ok {
		if omitted > 0 {
			w.log.Log(ctx, level, msg, "omitted", omitted)
		} else {
			w.log.Log(ctx, level, msg)
		}
	}
	return len(line), nil
}

// parseLog splits a line of memberlist's. What it calls an error is an event of the network or a peer, hence a warning at most: our own
// errors are those that end something.
func parseLog(line string) (slog.Level, string) {
	level := slog.LevelInfo
	if tag, rest, ok := strings.Cut(strings.TrimPrefix(line, "["), "]"); ok && strings.HasPrefix(line, "[") {
		line = rest
		switch tag {
		case "DEBUG":
			level = slog.LevelDebug
		case "WARN", "ERR", "ERROR":
			level = slog.LevelWarn
		}
	}
	return level, strings.TrimPrefix(strings.TrimSpace(line), "memberlist: ")
}

func (w *logWriter) admit(msg string) (ok bool, omitted int) {
	kind := logKindOf(msg)
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.kinds[kind]
	if k == nil {
		if len(w.kinds) >= logKinds {
			kind = ""
		}
		if k = w.kinds[kind]; k == nil {
			k = &logKind{from: now}
			w.kinds[kind] = k
		}
	}
	if now.Sub(k.from) >= logEvery {
		omitted = k.omitted
		*k = logKind{from: now}
	}
	if k.written >= logBurst {
		k.omitted++
		return false, 0
	}
	k.written++
	return true, omitted
}

// logKindOf is the beginning of a message up to where it names somebody: a digit, a quote or a bracket.
func logKindOf(msg string) string {
	end := strings.IndexFunc(msg, func(r rune) bool { return unicode.IsDigit(r) || strings.ContainsRune(`"'(`, r) })
	if end < 0 || end > logPrefix {
		end = min(len(msg), logPrefix)
	}
	return msg[:end]
}
