package evloop

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errnoType is the system's error number, 0 for none. The paths that every request takes use it rather than error, which costs
// an interface.
type errnoType = syscall.Errno

const errAgain = unix.EAGAIN

// maxIOVectors is how many pieces one call writes at most. More would not help: by then the socket's buffer is full.
const maxIOVectors = 64

// sysError names the call that failed.
func sysError(call string, err error) error { return os.NewSyscallError(call, err) }

// closeDescriptor closes fd. Its error means nothing here: the number is free in any case (EINTR too), and a failed write has
// been or will never be heard of.
func closeDescriptor(fd int) { _ = unix.Close(fd) }

// socketError takes the socket's pending error, or ECONNRESET if it cannot say.
func socketError(fd int) error {
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if n == 0 {
		return unix.ECONNRESET
	}
	return errnoType(n)
}

func shutdownWrite(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) }

// setStreamOptions sets what every TCP connection gets: no delay, because the loop itself gathers what is written in a turn, and
// keep-alive unless idle is negative.
func setStreamOptions(fd int, idle time.Duration) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return err
	}
	if idle < 0 {
		return nil
	}
	return setKeepAlive(fd, idle)
}
