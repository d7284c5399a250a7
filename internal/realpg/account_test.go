package realpg

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// closedTree makes top/parent, both closed to others, below a folder that is open, and an account that stands for the user
// postgres. The test owns all of it, so that it needs no privilege.
func closedTree(t *testing.T) (top, parent string, a account) {
	t.Helper()
	top = filepath.Join(openFolder(t), "closed")
	parent = filepath.Join(top, "parent")
	if err := os.MkdirAll(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	return top, parent, account{credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

// openFolder is a temporary folder that everybody may enter. That of t.TempDir may be below a private TMPDIR.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ringside-account-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // macOS
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

func perm(t *testing.T, dir string) os.FileMode {
	t.Helper()
	st, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode().Perm()
}

// Guards R3.
func TestAdmitOpensWhatIsTemporary(t *testing.T) {
	top, parent, a := closedTree(t)
	a.temps = []string{filepath.Dir(top)}
	if err := a.admit(filepath.Join(parent, "data")); err != nil {
		t.Fatal(err)
	}
	if perm(t, parent) != 0o701 || perm(t, top) != 0o701 {
		t.Fatalf("%v %v", perm(t, parent), perm(t, top))
	}
}

// Guards R3.
func TestAdmitElsewhereOpensOnlyTheDirectoryAbove(t *testing.T) {
	top, parent, a := closedTree(t)
	err := a.admit(filepath.Join(parent, "data"))
	if err == nil || !strings.Contains(err.Error(), "may not enter "+top+",") {
		t.Fatalf("got %v", err)
	}
	if perm(t, top) != 0o700 {
		t.Fatalf("a directory that is not ours was opened: %v", perm(t, top))
	}
	if err := a.admit(filepath.Join(top, "data")); err != nil || perm(t, top) != 0o701 {
		t.Fatalf("directly above: %v, %v", err, perm(t, top))
	}
}

// Guards R3.
func TestAdmitNeverOpensAHome(t *testing.T) {
	top, _, a := closedTree(t)
	a.home = top
	if err := a.admit(filepath.Join(top, "data")); err == nil || perm(t, top) != 0o700 {
		t.Fatalf("%v, %v", err, perm(t, top))
	}
}

func TestTempTakesTheFirstDirectoryThatCanBeReached(t *testing.T) {
	top, _, a := closedTree(t)
	open := openFolder(t)
	a.temps = []string{top, open}
	dir, err := a.temp()
	if err != nil || filepath.Dir(dir) != open {
		t.Fatalf("%q, %v", dir, err)
	}
	if perm(t, top) != 0o700 {
		t.Fatalf("a private TMPDIR was opened: %v", perm(t, top))
	}
	a.temps = []string{top}
	if dir, err := a.temp(); err == nil {
		t.Fatalf("%q", dir)
	}
}

func TestAsOurselvesNothingIsChanged(t *testing.T) {
	top, parent, _ := closedTree(t)
	if err := (account{}).admit(filepath.Join(parent, "data")); err != nil {
		t.Fatal(err)
	}
	if perm(t, top) != 0o700 || perm(t, parent) != 0o700 {
		t.Fatalf("%v %v", perm(t, parent), perm(t, top))
	}
}
