package evloop

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// socketPath is the file of a unix listener and the lock that makes us its owner. The lock, on PATH.lock, is what keeps two
// processes that start at once from each taking the other's new socket for a dead one; the system drops it with the process.
type socketPath struct {
	path string
	lock *os.File
	mine os.FileInfo
}

// bindSocketPath binds fd to path. Nobody can connect before the caller listens, so the permissions are in place by then.
func bindSocketPath(fd int, path string, mode fs.FileMode) (_ *socketPath, err error) {
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	s := &socketPath{path: path, lock: lock}
	defer func() {
		if err != nil {
			s.remove()
		}
	}()
	if err := removeDeadSocket(path); err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, sysError("bind", err)
	}
	if s.mine, err = os.Lstat(path); err != nil {
		return nil, err
	}
	return s, os.Chmod(path, mode)
}

// remove removes the socket, if it is still ours, and the lock.
func (s *socketPath) remove() {
	if s.mine != nil {
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.mine) {
			_ = os.Remove(s.path) // left behind it is a dead socket, which the next start removes
		}
	}
	_ = os.Remove(s.lock.Name())
	_ = s.lock.Close()
}

// lockFile opens or creates name and locks it. Its owner removes it before it unlocks, so a lock may turn out to be on a file
// that is there no more; then somebody was quicker and it is tried again.
func lockFile(name string) (*os.File, error) {
	for range 100 {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("%s is locked: another process listens there", name)
			}
			return nil, sysError("flock", err)
		}
		held, err := f.Stat()
		if err == nil {
			var now os.FileInfo
			if now, err = os.Stat(name); err == nil && os.SameFile(now, held) {
				return f, nil
			}
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s keeps changing hands", name)
}

// removeDeadSocket removes path if it is a socket on which nobody listens. Nothing else is ever removed.
func removeDeadSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket (%v); remove it or choose another path", path, info.Mode().Type())
	}
	fd, err := newSocket(unix.AF_UNIX)
	if err != nil {
		return sysError("socket", err)
	}
	defer closeDescriptor(fd)
	switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err {
	case unix.ECONNREFUSED:
		return os.Remove(path)
	case nil, unix.EAGAIN, unix.EINPROGRESS:
		return fmt.Errorf("%s is in use: somebody listens there", path)
	default:
		return fmt.Errorf("%s exists and cannot be tried: %w", path, err)
	}
}
