//go:build unix && !linux

package childproc

import "syscall"

// attributes has no way to ask for a signal at the parent's death here; see C1.
func attributes(c *syscall.Credential, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: c}
}
