package realredis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"ringside/internal/childproc"
)

const (
	askEvery = 5 * time.Millisecond
	askLimit = time.Second // for one answer
)

// errStranger means that the port is served by a process that is not the one just started.
var errStranger = errors.New("another process answers on this port")

// awaitAnswer returns when proc serves addr (R1), with an error when it ends or the context does.
func awaitAnswer(ctx context.Context, addr string, proc *childproc.Process) error {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		err := ask(ctx, addr, proc.PID())
		if err == nil || errors.Is(err, errStranger) {
			return err
		}
		select {
		case <-proc.Done():
			if ended := proc.Err(); ended != nil {
				return ended
			}
			return errors.New("it ended at once, without an error")
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w; last try: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// ask sends INFO and compares the process id.
func ask(ctx context.Context, addr string, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(c, "INFO\r\n"); err != nil {
		return err
	}
	return checkInfo(bufio.NewReader(c), pid)
}

// checkInfo reads the reply to INFO. A server that wants a password has started too, though it does not say which process it is.
func checkInfo(r *bufio.Reader, pid int) error {
	head, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	head = strings.TrimSpace(head)
	if strings.HasPrefix(head, "-NOAUTH") || strings.HasPrefix(head, "-NOPERM") {
		return nil
	}
	size, err := strconv.Atoi(strings.TrimPrefix(head, "$"))
	if err != nil || size < 0 || size > 1<<20 || head[0] != '$' {
		return fmt.Errorf("unexpected reply to INFO: %q", head)
	}
	info := make([]byte, size)
	if _, err := io.ReadFull(r, info); err != nil {
		return err
	}
	said := map[string]string{}
	for line := range strings.Lines(string(info)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		said[name] = value
	}
	switch id, ok := said["process_id"]; {
	case !ok:
		return errors.New("the reply to INFO has no process_id")
	case id != strconv.Itoa(pid):
		return fmt.Errorf("%w (pid %s)", errStranger, id)
	case said["loading"] == "1":
		return errors.New("it still loads what it had kept, and refuses all else")
	}
	return nil
}
