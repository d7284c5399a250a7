package realpg

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody stands for the user postgres; admit changes only directories of ours, so that the test needs no privilege.
func nobody() account { return account{credential: &syscall.Credential{Uid: 65534, Gid: 65534}} }

// Guards R3.
func TestAdmitOpensOnlyWhatIsTemporaryOrDirectlyAbove(t *testing.T) {
	tmp := t.TempDir()
	closed := filepath.Join(tmp, "closed")
	parent := filepath.Join(closed, "parent")
	if err := os.MkdirAll(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	perm := func(dir string) os.FileMode {
		st, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		return st.Mode().Perm()
	}

	t.Run("in the temporary directory", func(t *testing.T) {
		if err := nobody().admit(filepath.Join(parent, "data")); err != nil {
			t.Fatal(err)
		}
		if perm(parent) != 0o701 || perm(closed) != 0o701 {
			t.Fatalf("%v %v", perm(parent), perm(closed))
		}
	})
	t.Run("elsewhere", func(t *testing.T) {
		t.Setenv("TMPDIR", parent) // now closed is not below it
		for _, dir := range []string{closed, parent} {
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		err := nobody().admit(filepath.Join(parent, "data"))
		if err == nil || !strings.Contains(err.Error(), closed) {
			t.Fatalf("got %v", err)
		}
		if perm(closed) != 0o700 {
			t.Fatalf("a directory that is not ours was opened: %v", perm(closed))
		}
	})
	t.Run("never a home", func(t *testing.T) {
		t.Setenv("TMPDIR", filepath.Join(closed))
		t.Setenv("HOME", closed)
		if err := os.Chmod(closed, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := nobody().admit(filepath.Join(closed, "data")); err == nil || perm(closed) != 0o700 {
			t.Fatalf("%v, %v", err, perm(closed))
		}
	})
	t.Run("as ourselves", func(t *testing.T) {
		if err := (account{}).admit("/no/such/place"); err != nil {
			t.Fatal(err)
		}
	})
}
