package evloop

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reading and writing go past the Go scheduler (RawSyscall): the descriptors are non-blocking, so the calls take microseconds,
// and being noticed by the scheduler would cost a good part of one each. The socket calls are shorter ways into the kernel than
// read and write.

func sysRead(fd int, p []byte) (int, errnoType) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
			uintptr(len(p)), 0, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != unix.EINTR {
			return 0, errno
		}
	}
}

func sysWrite(fd int, p []byte) (int, errnoType) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
			uintptr(len(p)), unix.MSG_NOSIGNAL, 0, 0)
		if errno == 0 {
			return int(n), 0
		}
		if errno != unix.EINTR {
			return 0, errno
		}
	}
}

// ioVectors is a loop's array for writev.
type ioVectors struct {
	list [maxIOVectors]unix.Iovec
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
	v.list[v.n].Base = unsafe.SliceData(p)
	v.list[v.n].SetLen(len(p))
	v.n++
	return true
}

func (v *ioVectors) write(fd int) (int, errnoType) {
	defer clear(v.list[:v.n]) // they keep the buffers alive
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&v.list)), uintptr(v.n))
		if errno == 0 {
			return int(n), 0
		}
		if errno != unix.EINTR {
			return 0, errno
		}
	}
}

// newSocket returns a non-blocking stream socket that children do not inherit.
func newSocket(family int) (int, error) {
	return unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// socketPair returns two connected stream sockets, likewise.
func socketPair() ([2]int, error) {
	return unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
}

// accept returns a non-blocking connection that children do not inherit.
func accept(fd int) (int, unix.Sockaddr, error) {
	return unix.Accept4(fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
}

func setKeepAlive(fd int, idle time.Duration) error {
	seconds := int(idle / time.Second)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds); err != nil {
		return err
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
}
