package evloop

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func sysRead(fd int, p []byte) (int, errnoType) {
	return again(func() (int, error) { return unix.Read(fd, p) })
}

func sysWrite(fd int, p []byte) (int, errnoType) {
	return again(func() (int, error) { return unix.Write(fd, p) })
}

// again repeats an interrupted call.
func again(call func() (int, error)) (int, errnoType) {
	for {
		n, err := call()
		if err == nil {
			return n, 0
		}
		if errno, ok := err.(errnoType); ok && errno != unix.EINTR {
			return 0, errno
		}
	}
}

// ioVectors is a loop's array for a gathering write.
type ioVectors struct {
	list [maxIOVectors][]byte
	n    int
}

func (v *ioVectors) start() *ioVectors {
	v.n = 0
	return v
}

// add returns false when there is no room for p.
func (v *ioVectors) add(p []byte) bool {
	if v.n == len(v.list) {
		return false
	}
	v.list[v.n] = p
	v.n++
	return true
}

func (v *ioVectors) write(fd int) (int, errnoType) {
	defer clear(v.list[:v.n]) // they keep the buffers alive
	return again(func() (int, error) { return unix.SendmsgBuffers(fd, v.list[:v.n], nil, nil, 0) })
}

// newSocket returns a non-blocking stream socket that children do not inherit. The lock keeps others from forking between
// the two calls that this takes.
func newSocket(family int) (int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err != nil {
		return -1, err
	}
	return fd, secure(fd)
}

// socketPair returns two connected stream sockets, likewise.
func socketPair() ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return fds, err
	}
	if err := secure(fds[0]); err != nil {
		closeDescriptor(fds[1])
		return fds, err
	}
	if err := secure(fds[1]); err != nil {
		closeDescriptor(fds[0])
		return fds, err
	}
	return fds, nil
}

// accept returns a non-blocking connection that children do not inherit.
func accept(fd int) (int, unix.Sockaddr, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	conn, addr, err := unix.Accept(fd)
	if err != nil {
		return -1, nil, err
	}
	return conn, addr, secure(conn)
}

// secure sets what Linux sets in the call that makes the descriptor. It closes the descriptor if it fails.
func secure(fd int) error {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		closeDescriptor(fd)
		return err
	}
	return nil
}

func setKeepAlive(fd int, idle time.Duration) error {
	seconds := int(idle / time.Second)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPALIVE, seconds); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds); err != nil {
		return err
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
}
