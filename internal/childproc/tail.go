package childproc

import (
	"io"
	"strings"
	"sync"
)

// tailSize is how much of a child's output is kept for error messages.
const tailSize = 8 << 10

// tail keeps the end of what is written to it and passes everything on.
type tail struct {
	next io.Writer // may be nil

	mu   sync.Mutex // guards kept
	kept []byte
}

// Write never fails: a log that cannot be written must not block or end the child.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - tailSize; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	t.mu.Unlock()
	if t.next != nil {
		_, _ = t.next.Write(b)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// quote is the output as the end of an error message, or nothing.
func (t *tail) quote() string {
	s := strings.TrimSpace(t.String())
	if s == "" {
		return ""
	}
	return "; its last output:\n" + s
}
