package gauge

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
)

// ResidentKiB is how much memory of a process is resident.
func ResidentKiB(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of a process is read from /proc, as Linux has it: %w", err)
	}
	return parseResident(text)
}

func parseResident(status []byte) (int64, error) {
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		var n int64
		if _, err := fmt.Sscanf(lines.Text(), "VmRSS: %d kB", &n); err == nil {
			return n, nil
		}
	}
	return 0, errors.Join(errors.New("/proc/PID/status has no VmRSS"), lines.Err())
}
