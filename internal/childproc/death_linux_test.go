package childproc

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Guards C1: the child dies with a program that had no chance to stop it.
func TestChildDiesWithItsParent(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(exe)
	parent.Env = append(os.Environ(), parentRole+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	_, scanErr := fmt.Fscan(out, &child)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed: an error is expected
	if scanErr != nil {
		t.Fatal(scanErr)
	}
	if err := waitGone([]int{child}); err != nil {
		t.Fatal(err)
	}
}
