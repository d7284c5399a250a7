package realbrowser

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"ringside/internal/childproc"
)

// Patience bounds every wait.
const Patience = 60 * time.Second

// Browser is a running Chromium. Its methods may be called from any goroutine.
type Browser struct {
	process *childproc.Process
	profile string
	to      *os.File // requests
	from    *os.File // answers and events
	read    chan struct{}

	mu      sync.Mutex // guards the following, and writing
	last    int
	waiting map[int]chan message
	tabs    map[string]*Tab // by session
	broken  error           // why there will be no more answers
}

// message is a request, an answer or an event of the protocol.
type message struct {
	ID      int             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// find returns the program, as scripts/setup installs it.
func find() (string, error) {
	for _, name := range []string{
		"chromium", "chromium-browser", "google-chrome", "/Applications/Chromium.app/Contents/MacOS/Chromium", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
	} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no Chromium: run scripts/setup page")
}

// Start starts a browser with a profile of its own.
func Start() (*Browser, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	profile, err := os.MkdirTemp("", "ringside-browser-")
	if err != nil {
		return nil, err
	}
	b := &Browser{profile: profile, read: make(chan struct{}), waiting: map[int]chan message{}, tabs: map[string]*Tab{}}
	if err := b.start(path); err != nil {
		return nil, errors.Join(err, os.RemoveAll(profile))
	}
	go b.listen()
	return b, nil
}

func (b *Browser) start(path string) error {
	itsIn, to, err := os.Pipe()
	if err != nil {
		return err
	}
	from, itsOut, err := os.Pipe()
	if err != nil {
		return errors.Join(err, itsIn.Close(), to.Close())
	}
	b.process, err = childproc.Start(childproc.Options{
		Path: path,
		Args: []string{
			// The sandbox needs rights that containers and root do not have; it only sees pages of the tests.
			"--headless", "--no-sandbox", "--remote-debugging-pipe", "--user-data-dir=" + b.profile,
			"--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
			"--no-first-run", "--no-default-browser-check", "--no-proxy-server", "--hide-scrollbars", "--mute-audio", "--force-color-profile=srgb", "--lang=en",
			"about:blank",
		},
		Env:   append(os.Environ(), "HOME="+b.profile, "XDG_CONFIG_HOME="+b.profile, "XDG_CACHE_HOME="+b.profile),
		Files: []*os.File{itsIn, itsOut},
	})
	err = errors.Join(err, itsIn.Close(), itsOut.Close())
	if err != nil {
		return errors.Join(err, to.Close(), from.Close())
	}
	b.to, b.from = to, from
	return nil
}

// listen hands out what the browser says, until it ends.
func (b *Browser) listen() {
	defer close(b.read)
	in := bufio.NewReaderSize(b.from, 1<<20)
	for {
		raw, err := in.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.broken = fmt.Errorf("the browser has ended: %w", err)
			for id, c := range b.waiting {
				close(c)
				delete(b.waiting, id)
			}
			b.mu.Unlock()
			return
		}
		var m struct {
			message
			Params json.RawMessage `json:"params"`
		}
		if json.Unmarshal(raw[:len(raw)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		c, tab := b.waiting[m.ID], b.tabs[m.Session]
		delete(b.waiting, m.ID)
		b.mu.Unlock()
		switch {
		case m.ID != 0 && c != nil:
			c <- m.message
		case m.ID == 0 && tab != nil:
			tab.hear(m.Method, m.Params)
		}
	}
}

// call asks the browser, or one of its tabs if a session is given, and decodes the answer into result, which may be nil.
func (b *Browser) call(session, method string, params, result any) error {
	answer := make(chan message, 1)
	b.mu.Lock()
	if b.broken != nil {
		b.mu.Unlock()
		return b.broken
	}
	b.last++
	id := b.last
	b.waiting[id] = answer
	request, err := json.Marshal(message{ID: id, Method: method, Params: params, Session: session})
	if err == nil {
		_, err = b.to.Write(append(request, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	late := time.NewTimer(Patience)
	defer late.Stop()
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("%s: the browser has ended: %s", method, b.process.Output())
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-late.C:
		return fmt.Errorf("%s: no answer within %v", method, Patience)
	}
}

// Close ends the browser.
func (b *Browser) Close() error {
	// It ends by itself when the pipe does, and tidies up; whatever is left then is killed.
	err := b.to.Close()
	select {
	case <-b.process.Done():
	case <-time.After(Patience / 6):
		err = errors.Join(err, b.process.KillTree())
	}
	err = errors.Join(err, b.from.Close())
	<-b.read
	// Processes that it had started may still write into the profile, for a moment.
	var removed error
	for range 50 {
		if removed = os.RemoveAll(b.profile); removed == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.Join(err, removed)
}
