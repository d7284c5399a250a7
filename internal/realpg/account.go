package realpg

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// account is the user that PostgreSQL runs as: ourselves, or postgres when we are root (R3).
type account struct {
	credential *syscall.Credential // nil: ourselves
}

func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
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
	return account{credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

// own gives a directory to the account.
func (a account) own(dir string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(dir, int(a.credential.Uid), int(a.credential.Gid))
}

// admit lets the account reach dir, whose parent must exist. Where a directory on the way is closed to others
// it gets the search bit (its names stay unreadable) if it lies in the directory for temporary files, or directly above dir and
// is nobody's home; any other closed directory is an error that names it.
func (a account) admit(dir string) error {
	if a.credential == nil {
		return nil
	}
	temp, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root" // admit acts for root only
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if err != nil {
		return err
	}
	for at := parent; ; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		if err != nil {
			return err
		}
		if st.Mode().Perm()&0o001 == 0 && !a.owns(st) {
			ours := strings.HasPrefix(at, temp+"/") || (at == parent && at != home)
			if !ours {
				return fmt.Errorf("the user postgres may not enter %s, so the data cannot be in %s: choose a directory that others may enter", at, dir)
			}
			if err := os.Chmod(at, st.Mode().Perm()|0o001); err != nil {
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
