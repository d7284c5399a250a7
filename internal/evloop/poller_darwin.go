package evloop

import (
	"time"

	"golang.org/x/sys/unix"
)

// poller is a kqueue, level-triggered, with one filter per direction and a user event that ends its wait.
type poller struct {
	fd     int
	events []unix.Kevent_t
	gens   []uint32 // by descriptor: kqueue's own field for it holds a pointer that the garbage collector would follow
}

// wakeIdent is the user event's. Descriptor numbers use other filters, so it collides with none.
const wakeIdent = 0

func newPoller(maxEvents int) (*poller, error) {
	fd, err := unix.Kqueue() // not inherited by children
	if err != nil {
		return nil, sysError("kqueue", err)
	}
	unix.CloseOnExec(fd)
	p := &poller{fd: fd, events: make([]unix.Kevent_t, maxEvents)}
	err = p.control(unix.Kevent_t{Ident: wakeIdent, Filter: unix.EVFILT_USER, Flags: unix.EV_ADD | unix.EV_CLEAR})
	if err != nil {
		closeDescriptor(fd)
		return nil, sysError("kevent", err)
	}
	return p, nil
}

func (p *poller) close() { closeDescriptor(p.fd) }

// wake ends the present or next wait. Any goroutine, but not after close.
func (p *poller) wake() {
	// It cannot fail for a registered user event, save by EINTR, which control repeats.
	_ = p.control(unix.Kevent_t{Ident: wakeIdent, Filter: unix.EVFILT_USER, Fflags: unix.NOTE_TRIGGER})
}

// poll returns how many events there are now.
func (p *poller) poll() (int, error) {
	var none unix.Timespec
	return eventCount(unix.Kevent(p.fd, nil, p.events, &none))
}

// wait blocks until there are events, or for the timeout; negative: for ever.
func (p *poller) wait(timeout time.Duration) (int, error) {
	if timeout < 0 {
		return eventCount(unix.Kevent(p.fd, nil, p.events, nil))
	}
	const longest = time.Hour // the kernel refuses very long ones
	ts := unix.NsecToTimespec(int64(min(timeout, longest)))
	return eventCount(unix.Kevent(p.fd, nil, p.events, &ts))
}

func eventCount(n int, err error) (int, error) {
	if err == nil {
		return n, nil
	}
	if err == unix.EINTR {
		return 0, nil
	}
	return 0, sysError("kevent", err)
}

func (p *poller) event(i int) event {
	e := &p.events[i]
	fd := int(e.Ident)
	if e.Filter == unix.EVFILT_USER || fd >= len(p.gens) {
		return event{fd: -1}
	}
	var ready readiness
	switch e.Filter {
	case unix.EVFILT_READ:
		ready = readyRead // with EV_EOF too: reading says what it is, after the input that is left
	case unix.EVFILT_WRITE:
		ready = readyWrite
	}
	if e.Flags&unix.EV_ERROR != 0 {
		ready |= readyError
	}
	return event{fd: fd, gen: p.gens[fd], ready: ready}
}

func (p *poller) add(fd int, gen uint32, in interest) error {
	for fd >= len(p.gens) {
		p.gens = append(p.gens, 0)
	}
	p.gens[fd] = gen
	return p.change(fd, gen, 0, in)
}

func (p *poller) change(fd int, _ uint32, from, to interest) error {
	if err := p.filter(fd, unix.EVFILT_READ, from&wantRead != 0, to&wantRead != 0); err != nil {
		return err
	}
	return p.filter(fd, unix.EVFILT_WRITE, from&wantWrite != 0, to&wantWrite != 0)
}

func (p *poller) remove(fd int, from interest) error { return p.change(fd, 0, from, 0) }

func (p *poller) filter(fd, filter int, from, to bool) error {
	if from == to {
		return nil
	}
	flags := unix.EV_DELETE
	if to {
		flags = unix.EV_ADD
	}
	var ev unix.Kevent_t
	unix.SetKevent(&ev, fd, filter, flags)
	return p.control(ev)
}

func (p *poller) control(ev unix.Kevent_t) error {
	changes := []unix.Kevent_t{ev}
	for {
		_, err := unix.Kevent(p.fd, changes, nil, nil)
		if err != unix.EINTR {
			return err
		}
	}
}
