//go:build unix && !linux

package childproc

import (
	"bytes"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// ProcessorTime is what all threads of a process, a child or not, have used so far, as exactly as ps knows it.
func ProcessorTime(pid int) (time.Duration, error) {
	out, err := exec.Command("ps", "-o", "time=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return 0, fmt.Errorf("processor time of pid %d: %w", pid, err)
	}
	var total float64 // [hours:]minutes:seconds, seconds with a fraction
	for field := range strings.SplitSeq(string(bytes.TrimSpace(out)), ":") {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time of pid %d: ps said %q", pid, out)
		}
		total = total*60 + n
	}
	return time.Duration(total * float64(time.Second)), nil
}
