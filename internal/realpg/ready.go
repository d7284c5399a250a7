package realpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"ringside/internal/childproc"
)

const askEvery = 10 * time.Millisecond

// awaitReady returns when the postmaster of dir accepts connections (R1), with an error when it ends or the context does.
func awaitReady(ctx context.Context, dir string, proc *childproc.Process) error {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		// The file is missing, or another postmaster's, or half written, until the server has come so far.
		if file, err := os.ReadFile(filepath.Join(dir, "postmaster.pid")); err == nil && ready(string(file), proc.PID()) {
			return nil
		}
		select {
		case <-proc.Done():
			if ended := proc.Err(); ended != nil {
				return ended
			}
			return errors.New("it ended at once, without an error")
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w; its last output:\n%s", context.Cause(ctx), proc.Output())
		case <-tick.C:
		}
	}
}

// ready reads a postmaster.pid: the first line is the process id, the eighth says how far the server is.
func ready(file string, pid int) bool {
	lines := strings.Split(file, "\n")
	return len(lines) >= 8 && lines[0] == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
}
