package realpg

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// account is the user that PostgreSQL runs as: ourselves, or postgres when we are root (R3).
type account struct {
	credential *syscall.Credential // nil: ourselves, and nothing below matters
	temps      []string            // directories for temporary files, free of links, best first
	home       string              // of the user who runs us
}

func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{temps: []string{os.TempDir()}}, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return account{}, fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres to run it as (run scripts/setup): %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("user postgres: %w", err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return account{}, fmt.Errorf("user postgres: %w", err)
	}
	a := account{credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, home: "/root"}
	if home, err := os.UserHomeDir(); err == nil {
		a.home = home
	}
	for _, dir := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			a.temps = append(a.temps, real)
		}
	}
	return a, nil
}

// own gives a directory to the account.
func (a account) own(dir string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(dir, int(a.credential.Uid), int(a.credential.Gid))
}

// temp makes a temporary directory that the account can reach: TMPDIR may be private to root.
func (a account) temp() (dir string, err error) {
	for _, base := range a.temps {
		if err = a.open(base, a.isTemporary); err == nil {
			return os.MkdirTemp(base, "ringside-pg-")
		}
	}
	return "", err
}

// admit lets the account reach dir, whose parent must exist. Where a directory on the way is closed to others it gets the search
// bit (its names stay unreadable) if it lies in a directory for temporary files, or directly above dir and is nobody's home; any
// other closed directory is an error that names it.
func (a account) admit(dir string) error {
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if err != nil {
		return err
	}
	return a.open(parent, func(at string) bool { return a.isTemporary(at) || (at == parent && at != a.home) })
}

func (a account) isTemporary(dir string) bool {
	return slices.ContainsFunc(a.temps, func(temp string) bool { return strings.HasPrefix(dir, temp+"/") })
}

// open walks from dir up to the root and sets the search bit where it is missing and ours says that we may.
func (a account) open(dir string, ours func(dir string) bool) error {
	if a.credential == nil {
		return nil
	}
	for at := dir; ; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		if err != nil {
			return err
		}
		if st.Mode().Perm()&0o001 == 0 && !a.owns(st) {
			if !ours(at) {
				return fmt.Errorf("the user postgres may not enter %s, so the data cannot be in %s: choose a directory that others may enter", at, dir)
			}
			if err := os.Chmod(at, st.Mode()|0o001); err != nil {
				return err
			}
		}
		if at == "/" {
			return nil
		}
	}
}

// owns reports whether the account itself may enter: as the owner with the owner's bit.
func (a account) owns(st os.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && sys.Uid == a.credential.Uid && st.Mode().Perm()&0o100 != 0
}
