package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo terminal: what is behind it, and what a program takes for one.
func terminal(t *testing.T) (behind, program *os.File) {
	t.Helper()
	behind, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = behind.Close() })
	n, err := unix.IoctlGetInt(int(behind.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(behind.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(behind.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 60})
	}
	if err == nil {
		program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return behind, program
}

// shown collects what a program draws.
type shown struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *shown) read(f *os.File) {
	part := make([]byte, 4096)
	for {
		n, err := f.Read(part)
		s.mu.Lock()
		s.text.Write(part[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *shown) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// The live view is drawn on a real terminal, ends by q and by Ctrl-C with exit code 0, and gives the terminal back as it was.
func TestTopOnATerminal(t *testing.T) {
	addr := countingSidecar(t)
	for how, key := range map[string]string{"q": "q", "Ctrl-C": "\x03"} {
		t.Run(how, func(t *testing.T) {
			behind, program := terminal(t)
			before, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			var out shown
			go out.read(behind)
			cmd := exec.CommandContext(t.Context(), os.Args[0], "top", "--admin", addr, "--every", "100ms")
			cmd.Env = append(os.Environ(), asProgram+"=1")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// The second view has rates.
			for begun := time.Now(); strings.Count(out.String(), fromTheTop) < 3; time.Sleep(10 * time.Millisecond) {
				if time.Since(begun) > 30*time.Second {
					t.Fatalf("nothing was drawn: %q", out.String())
				}
			}
			now, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
			if err != nil || now.Lflag&(unix.ICANON|unix.ECHO) != 0 {
				t.Errorf("keys would not come at once: %x, %v", now.Lflag, err)
			}
			if _, err := behind.WriteString("x" + key); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("it ended with %v: %q", err, out.String())
			}
			if after, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS); err != nil || *after != *before {
				t.Errorf("the terminal is left as %+v, was %+v: %v", after, before, err)
			}
			for begun := time.Now(); !strings.HasSuffix(out.String(), leaveScreen); time.Sleep(10 * time.Millisecond) {
				if time.Since(begun) > 30*time.Second {
					t.Fatalf("the screen is not left: %q", out.String())
				}
			}
			text := out.String()
			if !strings.HasPrefix(text, enterScreen) || !strings.Contains(text, "REQUESTS/S") || !strings.Contains(text, "c2     down") {
				t.Errorf("it drew %q", text)
			}
			for line := range strings.SplitSeq(text[strings.LastIndex(text, fromTheTop)+len(fromTheTop):], "\r\n") {
				if line = strings.NewReplacer(boldOn, "", boldOff, "", restOfLine, "", restOfAll, "", leaveScreen, "").Replace(line); len([]rune(line)) > 60 {
					t.Errorf("a line is longer than the terminal is wide: %q", line)
				}
			}
		})
	}
}
