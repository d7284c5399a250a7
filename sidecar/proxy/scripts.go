package proxy

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"sync"
	"sync/atomic"
)

// library remembers the scripts and functions that clients have loaded through this sidecar, to teach them to a server that does not know
// them: one that has restarted, or joined later. It is shared by all loops and locked for look-ups only. What does not fit any more is
// forgotten, the oldest first; a client that uses it is told NOSCRIPT by the server then, as after any restart.
type library struct {
	mu      sync.RWMutex
	bodies  map[string]string // of scripts, by SHA-1 in hexadecimal
	known   map[string]bool   // bodies, to know one again without computing its SHA-1
	order   []string          // SHA-1s, oldest first
	bytes   int
	sources map[string]string // of function libraries, by name

	// flushes and edition change when scripts are flushed and when functions change: what a connection was taught before does not count then.
	flushes, edition atomic.Uint64
}

const (
	maxScript      = 1 << 20
	maxScripts     = 8192
	maxScriptBytes = 32 << 20
	maxLibraries   = 256
)

func newLibrary() *library {
	return &library{bodies: map[string]string{}, known: map[string]bool{}, sources: map[string]string{}}
}

// remember keeps a script.
func (l *library) remember(body []byte) {
	if len(body) > maxScript {
		return
	}
	l.mu.RLock()
	known := l.known[string(body)]
	l.mu.RUnlock()
	if known {
		return
	}
	sum := sha1.Sum(body)
	sha := hex.EncodeToString(sum[:])
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.bodies[sha]; known {
		return
	}
	text := string(body)
	l.bodies[sha], l.known[text] = text, true
	l.order = append(l.order, sha)
	l.bytes += len(text)
	for l.bytes > maxScriptBytes || len(l.order) > maxScripts {
		oldest := l.bodies[l.order[0]]
		delete(l.bodies, l.order[0])
		delete(l.known, oldest)
		l.bytes -= len(oldest)
		l.order = l.order[1:]
	}
}

// script returns the script with a SHA-1, given in any case.
func (l *library) script(sha []byte) (body string, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	body, ok = l.bodies[string(sha)]
	if !ok && len(sha) == 2*sha1.Size {
		body, ok = l.bodies[strings.ToLower(string(sha))]
	}
	return body, ok
}

// forgetScripts is SCRIPT FLUSH.
func (l *library) forgetScripts() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.bodies)
	clear(l.known)
	l.order, l.bytes = nil, 0
	l.flushes.Add(1)
}

// changeFunctions changes the function libraries.
func (l *library) changeFunctions(change func(sources map[string]string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.sources)
	for name, source := range l.sources {
		if len(source) > maxScript || len(l.sources) > maxLibraries {
			delete(l.sources, name)
		}
	}
	l.edition.Add(1)
}

// functions returns the sources of the function libraries and their edition.
func (l *library) functions() ([]string, uint64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var all []string
	for _, source := range l.sources {
		all = append(all, source)
	}
	return all, l.edition.Load()
}

// taught is what a server was told by a connection since that was made.
type taught struct {
	scripts map[string]bool // by SHA-1
	flushes uint64
	edition uint64
}

// teachScript makes sure that the server at the other end knows a script, if we do. Call room first.
func (w *worker) teachScript(u *upstream, sha []byte) {
	l := w.server.library
	t := &u.taught
	if flushes := l.flushes.Load(); t.scripts == nil || t.flushes != flushes || len(t.scripts) > maxScripts {
		t.scripts, t.flushes = map[string]bool{}, flushes
	}
	if t.scripts[string(sha)] {
		return
	}
	if body, ok := l.script(sha); ok {
		t.scripts[string(sha)] = true
		u.sendCommand(nil, stepNone, []byte("SCRIPT"), []byte("LOAD"), []byte(body))
	}
}

// teachFunctions makes sure that the server at the other end has the function libraries that we know. It replaces none: the server's own
// may be newer, loaded by another sidecar. Call room first.
func (w *worker) teachFunctions(u *upstream) {
	l := w.server.library
	if u.taught.edition == l.edition.Load() {
		return
	}
	var sources []string
	sources, u.taught.edition = l.functions()
	for _, source := range sources {
		u.sendCommand(nil, stepNone, []byte("FUNCTION"), []byte("LOAD"), []byte(source))
	}
}
