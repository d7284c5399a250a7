package childproc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// processes reads the state of every process from /proc: small images have no ps.
func processes() (map[int]status, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := make(map[int]status, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // not a process
		}
		st, found, err := process(pid)
		if err != nil {
			return nil, err
		}
		if found {
			all[pid] = st
		}
	}
	return all, nil
}

// process reads the state of one process.
func process(pid int) (st status, found bool, err error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return status{}, false, nil
	}
	if err != nil {
		return status{}, false, fmt.Errorf("state of pid %d: %w", pid, err)
	}
	return parseStat(stat)
}

// parseStat reads "pid (name) state ppid ...". The name may hold anything, spaces and parentheses too; the last ")" ends it.
func parseStat(stat []byte) (st status, found bool, err error) {
	var state string
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	if _, err := fmt.Sscan(string(rest), &state, &st.parent); err != nil {
		return status{}, false, fmt.Errorf("process state %q: %w", stat, err)
	}
	st.stopped = state == "T" || state == "t"
	st.zombie = state == "Z" || state == "X"
	return st, true, nil
}
