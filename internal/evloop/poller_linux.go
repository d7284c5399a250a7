package evloop

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller is an epoll instance, level-triggered, and an eventfd that ends its wait.
type poller struct {
	fd     int
	waker  int
	events []unix.EpollEvent
}

func newPoller(maxEvents int) (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, sysError("epoll_create1", err)
	}
	waker, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		closeDescriptor(fd)
		return nil, sysError("eventfd", err)
	}
	// Edge-triggered: each write is one event, and nobody has to read the counter. Generation 0 is never a connection's.
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(waker)}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, waker, &ev); err != nil {
		closeDescriptor(fd)
		closeDescriptor(waker)
		return nil, sysError("epoll_ctl", err)
	}
	return &poller{fd: fd, waker: waker, events: make([]unix.EpollEvent, maxEvents)}, nil
}

func (p *poller) close() {
	closeDescriptor(p.waker)
	closeDescriptor(p.fd)
}

// wake ends the present or next wait. Any goroutine, but not after close.
func (p *poller) wake() {
	one := uint64(1)
	for {
		// EAGAIN would mean that the counter is full: 2^64-2 wake-ups, and there is an event pending then.
		_, err := unix.Write(p.waker, (*[8]byte)(unsafe.Pointer(&one))[:])
		if err != unix.EINTR {
			return
		}
	}
}

// poll returns how many events there are now.
func (p *poller) poll() (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])),
		uintptr(len(p.events)), 0, 0, 0)
	return eventCount(n, errno)
}

// wait blocks until there are events, or for the timeout rounded up to milliseconds; negative: for ever.
func (p *poller) wait(timeout time.Duration) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])),
		uintptr(len(p.events)), uintptr(milliseconds(timeout)), 0, 0)
	return eventCount(n, errno)
}

func eventCount(n uintptr, errno errnoType) (int, error) {
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	}
	return 0, sysError("epoll_pwait", errno)
}

// milliseconds rounds up, so that a timer is not found a little too early again and again.
func milliseconds(d time.Duration) int {
	const longest = time.Hour
	if d < 0 {
		return -1
	}
	return int((min(d, longest) + time.Millisecond - 1) / time.Millisecond)
}

func (p *poller) event(i int) event {
	e := &p.events[i]
	var ready readiness
	if e.Events&unix.EPOLLIN != 0 {
		ready |= readyRead
	}
	if e.Events&unix.EPOLLOUT != 0 {
		ready |= readyWrite
	}
	if e.Events&unix.EPOLLHUP != 0 {
		ready |= readyHangup
	}
	if e.Events&unix.EPOLLERR != 0 {
		ready |= readyError
	}
	return event{fd: int(e.Fd), gen: uint32(e.Pad), ready: ready}
}

func (p *poller) add(fd int, gen uint32, in interest) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, gen, in)
}

func (p *poller) change(fd int, gen uint32, _, in interest) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, gen, in)
}

func (p *poller) remove(fd int, _ interest) error {
	return p.control(unix.EPOLL_CTL_DEL, fd, 0, 0)
}

func (p *poller) control(op, fd int, gen uint32, in interest) error {
	ev := unix.EpollEvent{Fd: int32(fd), Pad: int32(gen)}
	if in&wantRead != 0 {
		ev.Events |= unix.EPOLLIN
	}
	if in&wantWrite != 0 {
		ev.Events |= unix.EPOLLOUT
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(p.fd), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(&ev)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
