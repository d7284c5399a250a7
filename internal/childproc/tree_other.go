//go:build unix && !linux

package childproc

import (
	"bytes"
	"fmt"
	"os/exec"
	"strconv"
)

// processes asks ps, which every system but Linux's small images has.
func processes() (map[int]status, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,state=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := make(map[int]status)
	for line := range bytes.Lines(out) {
		f := bytes.Fields(line)
		if len(f) != 3 {
			continue
		}
		pid, err := strconv.Atoi(string(f[0]))
		if err != nil {
			return nil, fmt.Errorf("list processes: %q: %w", line, err)
		}
		parent, err := strconv.Atoi(string(f[1]))
		if err != nil {
			return nil, fmt.Errorf("list processes: %q: %w", line, err)
		}
		all[pid] = status{parent: parent, stopped: f[2][0] == 'T', zombie: f[2][0] == 'Z'}
	}
	return all, nil
}

func process(pid int) (st status, found bool, err error) {
	all, err := processes()
	if err != nil {
		return status{}, false, err
	}
	st, found = all[pid]
	return st, found, nil
}
