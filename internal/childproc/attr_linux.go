package childproc

import "syscall"

func attributes(c *syscall.Credential, death syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death, Credential: c}
}
