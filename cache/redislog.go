package cache

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogRedis gives what go-redis has to say to log, at debug level, instead of standard error. It is for the whole process, whichever
// Cache the words are about, because go-redis has one logger: only main may call it (and the main of a test), before the first
// NewServers. Debug, because go-redis prints a line for each connection that is refused, and all that matters to an operator is told
// by this package itself: by errors, and by the counters of degraded reads.
func LogRedis(log *slog.Logger) { redis.SetLogger(redisLog{log}) }

type redisLog struct{ log *slog.Logger }

// Printf is called from any goroutine of go-redis.
func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "go-redis", "message", fmt.Sprintf(format, args...))
	}
}
