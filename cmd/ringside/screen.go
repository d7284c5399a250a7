package main

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// screen is a terminal that is drawn on as a whole.
type screen struct {
	in, out *os.File
	before  unix.Termios
}

const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the other screen, without the cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	fromTheTop  = "\x1b[H"
	restOfLine  = "\x1b[K"
	restOfAll   = "\x1b[J"
	boldOn      = "\x1b[1m"
	boldOff     = "\x1b[0m"
)

// openScreen takes the terminal over. close gives it back as it was.
func openScreen(in, out *os.File) (*screen, error) {
	s := &screen{in: in, out: out}
	before, err := unix.IoctlGetTermios(int(in.Fd()), getTermios)
	if err != nil {
		return nil, errors.New("there is no terminal here")
	}
	if _, err := unix.IoctlGetWinsize(int(out.Fd()), unix.TIOCGWINSZ); err != nil {
		return nil, errors.New("the output is no terminal")
	}
	s.before = *before
	// Keys come at once and are not shown; Ctrl-C stays a signal.
	now := s.before
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(in.Fd()), setTermios, &now); err != nil {
		return nil, err
	}
	_, err = out.WriteString(enterScreen)
	return s, err
}

func (s *screen) close() {
	_, _ = s.out.WriteString(leaveScreen) // nothing can be done about a terminal that is gone
	_ = unix.IoctlSetTermios(int(s.in.Fd()), setTermios, &s.before)
}

// awaitQ calls f when q is pressed, or the terminal is gone.
func (s *screen) awaitQ(f func()) {
	key := make([]byte, 1)
	for {
		if n, err := s.in.Read(key); err != nil || n == 1 && (key[0] == 'q' || key[0] == 'Q') {
			f()
			return
		}
	}
}

// draw shows the view below a title, as much as there is room for. Headings are bold.
func (s *screen) draw(title string, v topView) {
	columns, rows := 80, 24
	if size, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
		columns, rows = int(size.Col), int(size.Row)
	}
	lines := append([]string{title, ""}, v.lines()...)
	var b strings.Builder
	b.WriteString(fromTheTop)
	for i, line := range lines[:min(len(lines), rows-1)] {
		bold := i == 0 || lines[i-1] == "" && line != ""
		if bold {
			b.WriteString(boldOn)
		}
		b.WriteString(fitting(line, columns))
		if bold {
			b.WriteString(boldOff)
		}
		b.WriteString(restOfLine + "\n")
	}
	b.WriteString(restOfAll)
	_, _ = s.out.WriteString(b.String())
}

// fitting cuts a line to that many characters.
func fitting(line string, columns int) string {
	if r := []rune(line); len(r) > columns {
		return string(r[:columns])
	}
	return line
}
